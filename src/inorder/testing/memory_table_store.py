"""A table store in memory that keeps the contract of the real ones, for tests without a database."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from inorder.model.errors import RejectedError, UnknownOutcomeError
from inorder.ports.table_store import (
    NULL,
    Assigned,
    DeadLetter,
    FoldedRow,
    Pointer,
    RowKey,
    SliceTransaction,
    Tally,
    Value,
    Written,
)

Place: TypeAlias = tuple[str, int]
Version: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the table; None is a column that is null."""

    values: tuple[Value | None, ...]
    version: Version


@dataclass(slots=True)
class Contents:
    """All that a commit changes."""

    rows: dict[RowKey, StoredRow] = field(default_factory=dict)
    tombstones: dict[RowKey, Version] = field(default_factory=dict)
    pointers: dict[Place, Pointer] = field(default_factory=dict)
    letters: dict[tuple[str, int, int], DeadLetter] = field(default_factory=dict)
    settled: dict[tuple[str, int, int], tuple[str, str]] = field(default_factory=dict)
    """What was done with letters that are gone, and why."""
    tallies: dict[Place, list[Tally]] = field(default_factory=lambda: defaultdict(list))

    def copy(self) -> Contents:
        """A draft; what the dictionaries hold is never changed, but for the lists."""
        tallies = defaultdict(list, {place: list(tallies) for place, tallies in self.tallies.items()})
        rows, tombstones, pointers = dict(self.rows), dict(self.tombstones), dict(self.pointers)
        return Contents(rows, tombstones, pointers, dict(self.letters), dict(self.settled), tallies)


class MemoryTableStore:
    """Transactions work on a copy, and one lock stands for the pointer rows' locks.

    `lost_answers` makes the next commits lose their answer, each after it took effect or instead of it. `refuses` is a
    constraint: a row that it is true of is refused.
    """

    def __init__(self, mode: str = "upsert", refuses: Callable[[StoredRow], bool] = lambda _: False) -> None:
        self.contents = Contents()
        self.lost_answers: deque[Literal["committed", "rolled back"]] = deque()
        self._mode = mode
        self._refuses = refuses
        self._lock = threading.Lock()

    def install(self) -> None:
        """There are no tables to make."""

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with self._lock:
            transaction = _Transaction(self.contents.copy(), (topic, partition), self._mode, self._refuses)
            yield transaction
            answer = self.lost_answers.popleft() if self.lost_answers else None
            if answer != "rolled back":
                self.contents = transaction.contents
            if answer is not None:
                raise UnknownOutcomeError(f"The answer to COMMIT was lost for {topic}[{partition}].")

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return {partition: at for (name, partition), at in self.contents.pointers.items() if name == topic}

    def close(self) -> None:
        """Memory needs no connection."""


class _Transaction:
    def __init__(self, contents: Contents, place: Place, mode: str, refuses: Callable[[StoredRow], bool]) -> None:
        self.contents = contents
        self._place = place
        self._mode = mode
        self._refuses = refuses

    def lock_pointer(self) -> Pointer:
        return self.contents.pointers.setdefault(self._place, Pointer())

    @contextmanager
    def isolated(self) -> Iterator[None]:
        before = self.contents.copy()
        try:
            yield
        except BaseException:
            self.contents = before
            raise

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        return sum((self._written(row, (generation, row.offset)) for row in rows), Written())

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[Written | RejectedError]:
        return [self._alone(row, generation) for row in rows]

    def version(self, key: RowKey) -> tuple[int, int] | None:
        row = self.contents.rows.get(key)
        return self.contents.tombstones.get(key) if row is None else row.version

    def settle(self, offset: int, action: str, reason: str) -> bool:
        at = (*self._place, offset)
        if self.contents.letters.pop(at, None) is None:
            return False
        self.contents.settled[at] = action, reason
        return True

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self.contents.letters.setdefault((*self._place, letter.offset), letter)

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        self.contents.pointers[self._place] = replace(self.contents.pointers[self._place], next_offset=next_offset)
        self.contents.tallies[self._place].append(tally)

    def _alone(self, row: FoldedRow, generation: int) -> Written | RejectedError:
        try:
            with self.isolated():
                return self.upsert([row], generation)
        except RejectedError as error:
            return error

    def _written(self, row: FoldedRow, version: Version) -> Written:
        newest = self.version(row.key)
        if newest is not None and newest >= version:
            return Written(stale=row.records)
        before = self.contents.rows.get(row.key)
        if row.values is None:
            self.contents.rows.pop(row.key, None)
            self.contents.tombstones[row.key] = version
            changes = before is not None or row.wavered
            return Written(applied=row.records) if changes else Written(identical=row.records)
        if (self._mode == "insert" and before is not None) or (self._mode == "update" and before is None):
            return Written()
        after = StoredRow(_merged(before, row.values), version)
        if before is not None and before.values == after.values and not row.wavered:
            return Written(identical=row.records)
        if self._refuses(after):
            raise RejectedError(f"{after.values!r} is refused.")
        self.contents.rows[row.key] = after
        self.contents.tombstones.pop(row.key, None)
        return Written(applied=row.records)


def _merged(before: StoredRow | None, values: tuple[Assigned, ...]) -> tuple[Value | None, ...]:
    olds = (None,) * len(values) if before is None else before.values
    return tuple(old if new is None else None if new is NULL else new for old, new in zip(olds, values, strict=True))
