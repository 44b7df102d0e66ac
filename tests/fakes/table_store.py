"""A table store in memory that keeps the contract of the real ones, for tests without a database."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import orjson

from inorder.engines.slice_work import Pointer, Slice
from inorder.model.errors import RejectedError, UnknownOutcomeError
from inorder.pipeline.stores.ports import (
    NULL,
    Assigned,
    DeadLetter,
    FoldedRow,
    LetterFilter,
    LetterPlace,
    RowKey,
    SliceCounters,
    SliceTransaction,
    StoredLetter,
    Value,
    WriteCounts,
    add_unknown,
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
    unknown: dict[Place, dict[str, int]] = field(default_factory=dict)
    tallies: dict[Place, list[SliceCounters]] = field(default_factory=lambda: defaultdict(list))

    def copy(self) -> Contents:
        """A draft; what the dictionaries hold is never changed, but for the lists."""
        tallies = defaultdict(list, {place: list(tallies) for place, tallies in self.tallies.items()})
        rows, tombstones, pointers = dict(self.rows), dict(self.tombstones), dict(self.pointers)
        return Contents(rows, tombstones, pointers, dict(self.letters), dict(self.settled), dict(self.unknown), tallies)


class MemoryTableStore:
    """Transactions work on a copy, and one lock stands for the pointer rows' locks.

    `lost_answers` makes the next commits lose their answer, each after it took effect or instead of it. `refuses` is a
    constraint: a row that it is true of is refused.
    """

    def __init__(self, mode: str = "upsert", refuses: Callable[[StoredRow], bool] = lambda _: False) -> None:
        self.contents = Contents()
        self.lost_answers: deque[Literal["committed", "rolled back"]] = deque()
        self.waiting: dict[Place, str] = {}
        self._mode = mode
        self._refuses = refuses
        self._lock = threading.Lock()

    def install(self) -> None:
        """There are no tables to make."""

    def check(self) -> None:
        """There is no table to check."""

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

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        with self._lock:
            found = self.pointers(topic)
            generation = max((one.generation for one in found.values()), default=0)
            begun = {number: Pointer(first, generation, topic_id) for number, first in firsts.items()} | dict(found)
            for number, one in begun.items():
                self.contents.pointers[topic, number] = replace(one, topic_id=one.topic_id or topic_id)
            return self.pointers(topic)

    def note_waiting(self, topic: str, partition: int, reason: str) -> None:
        self.waiting[topic, partition] = reason

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

    def partitions(self) -> int:
        return sum(topic == self._place[0] for topic, _ in self.contents.pointers)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before = self.contents.copy()
        try:
            yield
        except BaseException:
            self.contents = before
            raise

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        return sum((self._written(row, (generation, row.offset)) for row in rows), WriteCounts())

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError]:
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

    def note_unknown(self, fields: Mapping[str, int]) -> None:
        self.contents.unknown[self._place] = add_unknown(self.contents.unknown.get(self._place, {}), fields)

    def move_pointer(self, next_offset: int, counters: SliceCounters, leader_epoch: int | None = None) -> None:
        before = self.contents.pointers[self._place]
        self.contents.pointers[self._place] = replace(before, next_offset=next_offset, leader_epoch=leader_epoch)
        self.contents.tallies[self._place].append(counters)

    def _alone(self, row: FoldedRow, generation: int) -> WriteCounts | RejectedError:
        try:
            with self.savepoint():
                return self.upsert([row], generation)
        except RejectedError as error:
            return error

    def _written(self, row: FoldedRow, version: Version) -> WriteCounts:
        newest = self.version(row.key)
        if newest is not None and newest >= version:
            return WriteCounts(stale=row.records, stale_keys=(row.key,))
        before = self.contents.rows.get(row.key)
        if row.values is None:
            self.contents.rows.pop(row.key, None)
            self.contents.tombstones[row.key] = version
            changes = before is not None or row.wavered
            return WriteCounts(applied=row.records) if changes else WriteCounts(identical=row.records)
        if (self._mode == "insert" and before is not None) or (self._mode == "update" and before is None):
            return WriteCounts()
        after = StoredRow(_merged(before, row.values), version)
        if before is not None and before.values == after.values and not row.wavered:
            return WriteCounts(identical=row.records)
        if self._refuses(after):
            raise RejectedError(f"{after.values!r} is refused.")
        self.contents.rows[row.key] = after
        self.contents.tombstones.pop(row.key, None)
        return WriteCounts(applied=row.records)


def _merged(before: StoredRow | None, values: tuple[Assigned, ...]) -> tuple[Value | None, ...]:
    olds = (None,) * len(values) if before is None else before.values
    return tuple(old if new is None else None if new is NULL else new for old, new in zip(olds, values, strict=True))


# The dead letters of a table store in memory, as people meet them.

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryDeadLetters:
    """Reads what is committed; all letters are of one pipeline and of generation 0."""

    def __init__(self, store: MemoryTableStore, pipeline: str = "test", newest_generation: int = 0) -> None:
        self._store = store
        self._pipeline = pipeline
        self._newest_generation = newest_generation

    def counts(self, wanted: LetterFilter) -> dict[str, int]:
        return dict(Counter(letter.code for letter in self._matching(wanted)).most_common())

    def places(self, wanted: LetterFilter) -> list[LetterPlace]:
        return sorted({letter.place for letter in self._matching(wanted)})

    def page(self, place: LetterPlace, wanted: LetterFilter, above: int = -1, most: int = 1000) -> list[StoredLetter]:
        found = [one for one in self._matching(wanted) if one.place == place and one.offset > above]
        return sorted(found, key=lambda one: one.offset)[:most]

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        contents = self._store.contents
        discarded = [at for at, (action, _) in contents.settled.items() if action == "discard"]
        places = [*contents.letters, *discarded]
        return frozenset(at[2] for at in places if at[:2] == place[1:] and at[2] > above)

    def newest_generation(self, pipeline: str) -> int:
        return self._newest_generation if pipeline == self._pipeline else 0

    def discard(self, wanted: LetterFilter, reason: str) -> int:
        letters = list(self._matching(wanted))
        for letter in letters:
            with self._store.slice_transaction(letter.topic, letter.partition) as transaction:
                transaction.settle(letter.offset, "discard", reason)
        return len(letters)

    def close(self) -> None:
        """Memory needs no connection."""

    def _matching(self, wanted: LetterFilter) -> Iterator[StoredLetter]:
        asked = {name: value for name in _FIELDS if (value := getattr(wanted, name)) is not None}
        for (topic, partition, offset), letter in self._store.contents.letters.items():
            stored = StoredLetter(
                self._pipeline,
                topic,
                partition,
                offset,
                0,
                letter.code,
                letter.detail,
                letter.key,
                letter.value,
                letter.timestamp,
                _NOW,
            )
            if all(getattr(stored, name) == value for name, value in asked.items()):
                yield stored


_FIELDS = ("pipeline", "topic", "partition", "offset", "code", "key")


# Slices and messages made by hand, for tests.


def message(identity: int | str, **fields: object) -> bytes:
    """The value of a record, as a publisher would send it."""
    return orjson.dumps({"id": identity, **fields})


def slice_of(*records: tuple[int, bytes | None], topic: str = "upsert", partition: int = 0) -> Slice:
    """A slice of (offset, value) pairs without record keys and timestamps."""
    nothing = [None] * len(records)
    offsets = [offset for offset, _ in records]
    return Slice(topic, partition, offsets, nothing, [value for _, value in records], nothing)


# What a table must hold, by the plainest reading of the rules: one record after the other, no slices, no versions.
#
# It shares no code with the pipeline, so that the two can be held against each other.

Record: TypeAlias = tuple[bytes | None, bytes | None]
"""The key and the value of a Kafka record."""

ModelRow: TypeAlias = dict[str, Any]

TYPES: dict[str, type] = {"enabled": bool, "data": str}
"""Of the messages that the model knows, which are those of the seed."""


def table_after(
    records: Iterable[Record],
    *,
    mode: str = "upsert",
    nulls: str = "ignore",
    deletes: str = "tombstone",
    before: Iterable[int] = (),
) -> dict[int, tuple[Any, ...]]:
    """The rows after all records; `before` are the keys of rows that were there, empty."""
    rows: dict[int, ModelRow] = {key: {} for key in before}
    for key, value in records:
        if value is None:
            if key is not None and key.isdigit() and mode != "insert" and deletes == "tombstone":
                rows.pop(int(key), None)
        elif (document := _valid(key, value)) is not None:
            _apply(rows, document.pop("id"), _asked(document, nulls), mode)
    return {key: tuple(row.get(name) for name in TYPES) for key, row in rows.items()}


def _apply(rows: dict[int, ModelRow], key: int, asked: ModelRow, mode: str) -> None:
    if not asked or (mode == "insert" and key in rows) or (mode == "update" and key not in rows):
        return
    rows.setdefault(key, {}).update(asked)


def _asked(document: ModelRow, nulls: str) -> ModelRow:
    known = {name: value for name, value in document.items() if name in TYPES and value != ""}
    return known if nulls == "write" else {name: value for name, value in known.items() if value is not None}


def _valid(key: bytes | None, value: bytes) -> ModelRow | None:
    try:
        document = json.loads(value)
    except ValueError:
        return None
    if not isinstance(document, dict) or type(document.get("id")) is not int:
        return None
    if key is not None and key != str(document["id"]).encode():
        return None
    fields = {name: document[name] for name in TYPES if document.get(name) not in (None, "")}
    return document if all(type(found) is TYPES[name] for name, found in fields.items()) else None
