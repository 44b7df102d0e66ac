"""A table store in memory that keeps the contract of the real ones, for tests without a database."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from inorder.model.errors import UnknownOutcomeError
from inorder.ports.table_store import (
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
    """A row of the table; None is a column that was never set."""

    values: tuple[Value | None, ...]
    version: Version


@dataclass(slots=True)
class Contents:
    """All that a commit changes."""

    rows: dict[RowKey, StoredRow] = field(default_factory=dict)
    pointers: dict[Place, Pointer] = field(default_factory=dict)
    letters: dict[tuple[str, int, int], DeadLetter] = field(default_factory=dict)
    tallies: dict[Place, list[Tally]] = field(default_factory=lambda: defaultdict(list))


class MemoryTableStore:
    """Transactions work on a copy, and one lock stands for the pointer rows' locks.

    `lost_answers` makes the next commits lose their answer, each after it took effect or instead of it.
    """

    def __init__(self) -> None:
        self.contents = Contents()
        self.lost_answers: deque[Literal["committed", "rolled back"]] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        with self._lock:
            draft = deepcopy(self.contents)
            yield _Transaction(draft, (topic, partition))
            answer = self.lost_answers.popleft() if self.lost_answers else None
            if answer != "rolled back":
                self.contents = draft
            if answer is not None:
                raise UnknownOutcomeError(f"The answer to COMMIT was lost for {topic}[{partition}].")

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return {partition: at for (name, partition), at in self.contents.pointers.items() if name == topic}

    def close(self) -> None:
        """Memory needs no connection."""


class _Transaction:
    def __init__(self, contents: Contents, place: Place) -> None:
        self._contents = contents
        self._place = place

    def lock_pointer(self) -> Pointer:
        return self._contents.pointers.setdefault(self._place, Pointer())

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        written = Written()
        for row in rows:
            version = (generation, row.offset)
            before = self._contents.rows.get(row.key)
            after = StoredRow(_merged(before, row.values), version)
            if before is not None and before.version >= version:
                written = replace(written, stale=written.stale + row.records)
            elif before is not None and before.values == after.values and not row.wavered:
                written = replace(written, identical=written.identical + row.records)
            else:
                self._contents.rows[row.key] = after
                written = replace(written, applied=written.applied + row.records)
        return written

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._contents.letters.setdefault((*self._place, letter.offset), letter)

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        self._contents.pointers[self._place] = replace(self._contents.pointers[self._place], next_offset=next_offset)
        self._contents.tallies[self._place].append(tally)


def _merged(before: StoredRow | None, values: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    if before is None:
        return values
    return tuple(old if new is None else new for old, new in zip(before.values, values, strict=True))
