"""Decides from a recorded history whether the guarantees held: ok, failed or unknown.

A history is a list of operations in the order in which they were seen. Writers record when a transaction began, with
its events, and what its COMMIT answered; readers record the records of the topic and the rows of the table. Nothing
here knows relays, pipelines, offsets of consumers or markers: this module imports nothing of what it judges.

**Events.** An event is a key and a place, and no two events of a history are equal. A transaction that was rolled back
keeps its places, so an event of it that arrives is recognised.

**Order.** Event A precedes event B of the same key if A's transaction had ended before B's began. Transactions that
overlap may arrive in either order. A transaction whose COMMIT was not answered (`UNANSWERED`) never ends: it may have
happened or not, at any time, so its events may arrive or not, once, in any order with what began later.

| violation  | what the history shows                                                                               |
|------------|------------------------------------------------------------------------------------------------------|
| lost       | a committed event is missing, although the outbox was empty when the topic was read to its end; or   |
|            | its row is missing, although a later record of its partition was applied                             |
| duplicated | an event is in the topic more than once; allowed where the delivery is at-least-once                 |
| reordered  | an event arrived after one that it precedes, or is missing although a later one is there, or a key   |
|            | is in two partitions                                                                                 |
| phantom    | an event of a transaction that was rolled back, or of none, is in the topic or in the table          |
| stale      | a row went back, or shows an older event although a later record of its partition was applied        |

A committed event that has not arrived while the outbox still has rows, or a row that is behind without such evidence,
is no violation: it makes the verdict `unknown`.

**Witness.** For a violation the operations that concern it are taken out of the history, and every one without which
the same violation is still found is dropped; only the beginnings of transactions stay, which say what an event is. The
shortest such list is the witness; it is a history itself.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from inorder.model.errors import ConfigurationError


class MarkedEvent(NamedTuple):
    """An event of a history; no other one has the same key and place."""

    key: str
    place: int


UNREADABLE: Final = -1
"""The place of a record or row that shows none; no transaction has it, so it is a phantom."""


class CommitAnswer(StrEnum):
    """What is known of the end of a transaction."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """A transaction is about to publish these events."""

    transaction: int
    events: tuple[MarkedEvent, ...]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """COMMIT or ROLLBACK returned, or failed."""

    transaction: int
    answer: CommitAnswer


@dataclass(frozen=True, slots=True)
class RecordRead:
    """A committed record of the topic."""

    event: MarkedEvent
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RowRead:
    """A row that differs from what the look before showed; one look sees all keys in one snapshot."""

    key: str
    place: int | None


@dataclass(frozen=True, slots=True)
class TopicRead:
    """Every record of the topic was read after the outbox had no row of this run."""


Operation: TypeAlias = TransactionBegun | TransactionEnded | RecordRead | RowRead | TopicRead


class ViolationKind(StrEnum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    PHANTOM = "phantom"
    STALE = "stale"


class VerifyOutcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee, and the events that show it."""

    kind: ViolationKind
    events: tuple[MarkedEvent, ...]
    is_absent: bool = False
    """Whether the first event is not in the topic at all; then a history without its records shows nothing."""


@dataclass(frozen=True, slots=True)
class History:
    """What was seen, and what the installation promises."""

    operations: tuple[Operation, ...]
    may_repeat: bool = False
    """Whether the delivery is at-least-once."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a history."""

    violations: tuple[Violation, ...]
    committed: int
    rolled_back: int
    unanswered: int
    delivered: int
    """Different events in the topic."""
    waiting: int
    """Committed events that had not arrived when the reader stopped, without evidence that they are lost."""
    behind: int
    """Rows that do not show their key's last event, without evidence that they should."""
    witness: tuple[Operation, ...] = ()

    @property
    def outcome(self) -> VerifyOutcome:
        if self.violations:
            return VerifyOutcome.FAILED
        undecided = self.waiting or self.behind or not self.committed
        return VerifyOutcome.UNKNOWN if undecided else VerifyOutcome.OK

    def count(self, kind: ViolationKind) -> int:
        return sum(violation.kind is kind for violation in self.violations)


def judge(history: History) -> Judgement:
    """The verdict, with the shortest witness if a guarantee was broken."""
    found = _Reading(history).judgement()
    kinds = {violation.kind: violation for violation in reversed(found.violations)}
    witnesses = [_witness(history, violation) for violation in kinds.values()]
    return replace(found, witness=min(witnesses, key=len, default=()))


def describe(operation: Operation) -> str:
    """A line for people."""
    match operation:
        case TransactionBegun(transaction, events):
            return f"transaction {transaction} began, with {', '.join(map(_shown, events))}"
        case TransactionEnded(transaction, CommitAnswer.UNANSWERED):
            return f"transaction {transaction}: the answer to COMMIT was lost"
        case TransactionEnded(transaction, answer):
            return f"transaction {transaction} was {answer}"
        case RecordRead(MarkedEvent(key, place), partition, offset) if place == UNREADABLE:
            return f"a record of key {key} in partition {partition} at offset {offset} shows no event"
        case RecordRead(event, partition, offset):
            return f"{_shown(event)} is in partition {partition} at offset {offset}"
        case RowRead(key, None):
            return f"the table has no row of key {key}"
        case RowRead(key, place) if place == UNREADABLE:
            return f"the row of key {key} shows no event"
        case RowRead(key, place):
            return f"the row of key {key} shows event {place}"
        case TopicRead():
            return "the outbox was empty, and the topic was read to its end"


def _shown(event: MarkedEvent) -> str:
    return f"event {event.place} of key {event.key}"


# The check.


@dataclass(slots=True)
class _Fate:
    """What is known of an event."""

    begun: int
    ended: float = math.inf
    answer: CommitAnswer = CommitAnswer.UNANSWERED
    records: list[RecordRead] = field(default_factory=list)

    @property
    def is_committed(self) -> bool:
        return self.answer is CommitAnswer.COMMITTED

    def precedes(self, other: _Fate) -> bool:
        return self.ended < other.begun


class _Reading:
    """A history, indexed by its events."""

    def __init__(self, history: History) -> None:
        self._may_repeat = history.may_repeat
        self._fates: dict[MarkedEvent, _Fate] = {}
        self._strangers: dict[MarkedEvent, None] = {}
        """Events in topic or table that no transaction has."""
        self._keys: dict[str, list[MarkedEvent]] = defaultdict(list)
        self._rows: dict[str, list[int | None]] = defaultdict(list)
        self._is_complete = any(isinstance(operation, TopicRead) for operation in history.operations)
        self._read_transactions(history.operations)
        self._read_topic(history.operations)
        for operation in history.operations:
            if isinstance(operation, RowRead):
                self._rows[operation.key].append(operation.place)

    def _read_transactions(self, operations: Sequence[Operation]) -> None:
        transactions: dict[int, tuple[MarkedEvent, ...]] = {}
        for index, operation in enumerate(operations):
            match operation:
                case TransactionBegun(transaction, events):
                    transactions[transaction] = events
                    self._fates |= {event: _Fate(index) for event in events}
                case TransactionEnded(transaction, answer):
                    for event in transactions.get(transaction, ()):
                        self._fates[event].answer = answer
                        self._fates[event].ended = math.inf if answer is CommitAnswer.UNANSWERED else index
                case _:
                    pass
        for event in self._fates:
            self._keys[event.key].append(event)

    def _read_topic(self, operations: Sequence[Operation]) -> None:
        # By place, because a consumer may read an offset twice.
        records = {(each.partition, each.offset): each for each in operations if isinstance(each, RecordRead)}
        for _, record in sorted(records.items()):
            if record.event in self._fates:
                self._fates[record.event].records.append(record)
            else:
                self._strangers[record.event] = None

    def judgement(self) -> Judgement:
        fates = self._fates.values()
        waiting, missing = self._missing()
        behind, rows = self._rows_at_fault()
        return Judgement(
            violations=(*self._phantoms(), *self._duplicates(), *self._disorder(), *missing, *rows),
            committed=sum(fate.is_committed for fate in fates),
            rolled_back=sum(fate.answer is CommitAnswer.ROLLED_BACK for fate in fates),
            unanswered=sum(fate.answer is CommitAnswer.UNANSWERED for fate in fates),
            delivered=sum(bool(fate.records) for fate in fates),
            waiting=waiting,
            behind=behind,
        )

    def _is_phantom(self, event: MarkedEvent) -> bool:
        fate = self._fates.get(event)
        return fate is None or fate.answer is CommitAnswer.ROLLED_BACK

    def _phantoms(self) -> Iterator[Violation]:
        shown = {MarkedEvent(key, place): None for key, row in self._rows.items() for place in row if place is not None}
        arrived = {event: None for event, fate in self._fates.items() if fate.records}
        for event in arrived | self._strangers | shown:
            if self._is_phantom(event):
                yield Violation(ViolationKind.PHANTOM, (event,))

    def _duplicates(self) -> Iterator[Violation]:
        if self._may_repeat:
            return
        for event, fate in self._fates.items():
            if len(fate.records) > 1:
                yield Violation(ViolationKind.DUPLICATED, (event,))

    def _disorder(self) -> Iterator[Violation]:
        """Among the first records of each event: a repeated one is out of order only if the first one was."""
        for events in self._keys.values():
            arrived = [event for event in events if self._fates[event].records and not self._is_phantom(event)]
            arrived.sort(key=lambda event: (self._first(event).partition, self._first(event).offset))
            latest: MarkedEvent | None = None
            for event in arrived:
                if latest is not None and self._first(latest).partition != self._first(event).partition:
                    yield Violation(ViolationKind.REORDERED, (latest, event))
                    break  # once a key
                if latest is not None and self._fates[event].precedes(self._fates[latest]):
                    yield Violation(ViolationKind.REORDERED, (event, latest))
                latest = event if latest is None or self._begun(event) > self._begun(latest) else latest

    def _missing(self) -> tuple[int, list[Violation]]:
        waiting = 0
        found: list[Violation] = []
        for events in self._keys.values():
            arrived = [event for event in events if self._fates[event].records and not self._is_phantom(event)]
            latest = max(arrived, key=self._begun, default=None)
            for event in events:
                fate = self._fates[event]
                if not fate.is_committed or fate.records:
                    continue
                if self._is_complete:
                    found.append(Violation(ViolationKind.LOST, (event,), is_absent=True))
                elif latest is not None and fate.precedes(self._fates[latest]):
                    found.append(Violation(ViolationKind.REORDERED, (event, latest), is_absent=True))
                else:
                    waiting += 1
        return waiting, found

    def _rows_at_fault(self) -> tuple[int, list[Violation]]:
        behind = 0
        found: list[Violation] = []
        applied = self._last_applied()
        for key, row in self._rows.items():
            found += self._steps_back(key, row)
            newer = self._newer_than(key, row[-1])
            if newer is None:
                continue
            first = self._first(newer)
            evidence = applied.get(first.partition)
            if evidence is None or self._first(evidence).offset <= first.offset:
                behind += 1
                continue
            kind = ViolationKind.LOST if row[-1] is None else ViolationKind.STALE
            shown = () if row[-1] is None else (MarkedEvent(key, row[-1]),)
            found.append(Violation(kind, (newer, evidence, *shown)))
        return behind, found

    def _steps_back(self, key: str, row: Sequence[int | None]) -> Iterator[Violation]:
        for before, after in pairwise(row):
            if before is None or self._is_phantom(seen := MarkedEvent(key, before)):
                continue
            if after is None:
                yield Violation(ViolationKind.STALE, (seen,))
            elif not self._is_phantom(event := MarkedEvent(key, after)) and self._fates[event].precedes(
                self._fates[seen]
            ):
                yield Violation(ViolationKind.STALE, (seen, event))

    def _last_applied(self) -> dict[int, MarkedEvent]:
        """By partition the event with the highest offset that a row showed."""
        found: dict[int, MarkedEvent] = {}
        for key, row in self._rows.items():
            for place in row:
                event = MarkedEvent(key, place or 0)
                if place is None or event not in self._fates or not self._fates[event].records:
                    continue
                first = self._first(event)
                best = found.get(first.partition)
                if best is None or first.offset > self._first(best).offset:
                    found[first.partition] = event
        return found

    def _newer_than(self, key: str, place: int | None) -> MarkedEvent | None:
        """The oldest committed event of a key in the topic that a row with this place does not show."""
        shown = self._fates.get(MarkedEvent(key, place)) if place is not None else None
        if place is not None and shown is None:
            return None  # a phantom, which is reported
        newer = [
            event
            for event in self._keys[key]
            if self._fates[event].is_committed
            and self._fates[event].records
            and (shown is None or shown.precedes(self._fates[event]))
        ]
        return min(newer, key=lambda event: self._first(event).offset, default=None)

    def _first(self, event: MarkedEvent) -> RecordRead:
        return self._fates[event].records[0]

    def _begun(self, event: MarkedEvent) -> int:
        return self._fates[event].begun


def _witness(history: History, violation: Violation) -> tuple[Operation, ...]:
    """The operations that show a violation, without one that could be left out."""
    kept = list(_concerning(history.operations, frozenset(violation.events)))
    for operation in list(kept):
        fewer = [other for other in kept if other is not operation]
        shorter = History(tuple(fewer), history.may_repeat)
        if not isinstance(operation, TransactionBegun) and violation in _Reading(shorter).judgement().violations:
            kept = fewer
    return tuple(kept)


def _concerning(operations: Sequence[Operation], events: frozenset[MarkedEvent]) -> Iterator[Operation]:
    keys = {event.key for event in events}
    transactions: set[int] = set()
    for operation in operations:
        match operation:
            case TransactionBegun(transaction, published) if events & set(published):
                transactions.add(transaction)
                yield TransactionBegun(transaction, tuple(event for event in published if event in events))
            case TransactionEnded(transaction, _) if transaction in transactions:
                yield operation
            case RecordRead(event, _, _) if event in events:
                yield operation
            case RowRead(key, place) if key in keys and (place is None or MarkedEvent(key, place) in events):
                yield operation
            case TopicRead():
                yield operation


# The file: a line of JSON for the history, then one for each operation.

_VERSION: Final = 1
_FORMAT: Final = "inorder history"


def dump(history: History, about: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The lines of a history's file; `about` is kept for people."""
    first = {"format": _FORMAT, "version": _VERSION, "may_repeat": history.may_repeat, **(about or {})}
    yield json.dumps(first, ensure_ascii=False)
    for operation in history.operations:
        yield json.dumps(_fields(operation), ensure_ascii=False)


def _fields(operation: Operation) -> dict[str, Any]:
    match operation:
        case TransactionBegun(transaction, events):
            return {"op": "begin", "transaction": transaction, "events": [list(event) for event in events]}
        case TransactionEnded(transaction, answer):
            return {"op": "end", "transaction": transaction, "answer": answer.value}
        case RecordRead(event, partition, offset):
            return {"op": "record", "event": list(event), "partition": partition, "offset": offset}
        case RowRead(key, place):
            return {"op": "row", "key": key, "place": place}
        case TopicRead():
            return {"op": "topic-read"}


def parse(lines: Iterable[str]) -> History:
    """The history of a file; raises `ConfigurationError`, which names the line."""
    operations: list[Operation] = []
    may_repeat = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if may_repeat is None:
                may_repeat = _promise(fields)
            else:
                operations.append(_operation(fields))
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(f"line {number} is {type(error).__name__}: {error}") from error
    if may_repeat is None:
        raise _unreadable("it is empty")
    return History(tuple(operations), may_repeat)


def _promise(fields: Mapping[str, Any]) -> bool:
    if fields["format"] != _FORMAT or fields["version"] != _VERSION:
        raise ValueError("not a history of this version")
    return bool(fields["may_repeat"])


def _operation(fields: Mapping[str, Any]) -> Operation:
    match fields["op"]:
        case "begin":
            return TransactionBegun(_number(fields["transaction"]), tuple(map(_event, fields["events"])))
        case "end":
            return TransactionEnded(_number(fields["transaction"]), CommitAnswer(fields["answer"]))
        case "record":
            return RecordRead(_event(fields["event"]), _number(fields["partition"]), _number(fields["offset"]))
        case "row":
            place = fields["place"]
            return RowRead(_text(fields["key"]), None if place is None else _number(place))
        case "topic-read":
            return TopicRead()
        case other:
            raise ValueError(f"no operation {other!r}")


def _event(pair: Sequence[Any]) -> MarkedEvent:
    key, place = pair
    return MarkedEvent(_text(key), _number(place))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _unreadable(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The file is not a history of `inorder verify run`: {why}.",
        hint="Write one with `inorder verify run --history FILE`.",
    )
