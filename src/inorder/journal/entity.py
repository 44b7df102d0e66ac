"""Entities: the state that a journal adds up to, and updates of it that lose nothing and apply nothing twice.

    account = Entity(Account(), apply)
    done = journals.update(Key("account-1", "journal"), account, lambda state: [{"deposited": 5}])

An update is a loop of three steps:

    recover    the latest snapshot and the events after it, at one mark: the state, its number and its life
    decide     your function returns the events that are to follow this state, or none
    append     on the condition that the journal is still in this life and ends at this number (`client.py`)

**What is authoritative.** The topic, for everything: the condition is part of the record, and the order of the log
decides whether it counts (`life.py`). State and snapshots are derived from it.

Invariants:

1. Events that an update appends follow exactly the events that its decision was based on: none before them was missing,
   none came in between, and the journal was not purged since.
2. A decision is appended once at most. It is sent again under the same append id, on the same condition, and what was
   sent first is recognised (`Journal.append_on`). A new decision is made only after the last one is known to be void.
3. The state that an update returns is the one that a recovery finds: events are applied as they will be read.
4. A snapshot is saved only in the life whose events it adds up to.

Failure table:

| what happens                               | what the update does                                                  |
|---|---|
| another writer appends, deletes or purges  | its own append is void; it recovers and decides again, after a random |
| between recover and append                 | pause, up to `attempts` times: `UpdateConflictError`, nothing counts  |
| the journal is truncated during recovery   | the same                                                              |
| the answer to the append is lost, or what  | it sends the same append again, up to `SEND_ATTEMPTS` times. Then it  |
| follows cannot be read                     | raises `UnknownOutcomeError`: the events may count                    |
| the process dies after the append          | the events count. Who repeats the command decides on the state that   |
|                                            | has them: `decide` must see there that nothing is left to do          |
| the snapshot cannot be saved               | the events count, and the update succeeds; it is logged, and the next |
|                                            | update saves one                                                      |
| the process dies before the snapshot       | the same                                                              |
| a purge comes between append and snapshot  | no snapshot: it would be of another life                              |
| a snapshot is of another `state_version`,  | it is ignored, and an earlier one is used that is not; if there is    |
| or cannot be decoded                       | none, all events are read; `SnapshotTooOldError` if some of those     |
|                                            | that are needed are deleted                                           |
| `decide` or `apply` raises                 | the error is yours; nothing was written by this attempt               |
| `decide` returns no event                  | nothing is written, and the state is returned that it was called with |

A life that Kafka Journal's replicator has stored has no name; there a purge in between that is followed by as many
events as before is not noticed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from inorder.journal.codec import from_value, to_value
from inorder.journal.event_types import from_json, to_json
from inorder.journal.snapshots import MarkedMoment, Recovery, has_hole
from inorder.model.errors import (
    ConfigurationError,
    InorderError,
    JournalChangedError,
    SeqNrConflictError,
    SnapshotTooOldError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    UpdateConflictError,
    ValidationError,
)
from inorder.model.journal import (
    ANY_SNAPSHOT,
    Event,
    Key,
    PartitionOffset,
    Payload,
    PayloadMetadata,
    SeqNr,
    Snapshot,
    SnapshotCriteria,
    json_payload,
    json_value,
)

if TYPE_CHECKING:
    from inorder.journal.client import Journal

log = logging.getLogger("inorder.journal")

State = TypeVar("State")
Decided: TypeAlias = Iterable[Any] | None
"""What a decision returns: the events to append, or none."""

ATTEMPTS: Final = 10
"""How often an update decides before it gives up."""
SEND_ATTEMPTS: Final = 3
"""How often one decision is sent; each time the producer itself retries within its own time limit."""
_LONGEST_PAUSE: Final = 2.0
_NO_SNAPSHOT: Final = SnapshotCriteria(max_time=datetime.min.replace(tzinfo=UTC))
_VERSION: Final = "state_version"


class EventCodec(Protocol):
    """Turns the events of an application into payloads and back: `EventTypes`, or a class of your own."""

    def encode(self, event: Any) -> Payload:
        """The payload of an event."""

    def decode(self, key: Key, event: Event) -> Any:
        """The event of a payload; `key` and the number are for errors."""


@dataclass(frozen=True)
class Entity(Generic[State]):
    """What the events of a journal add up to: `apply` of each event to the state, from `initial` on.

    `apply` is called for every event that is ever read, so it decides nothing and has no other effect.

    >>> Entity(0, lambda balance, event: balance + event["deposited"]).fold(2, [{"deposited": 3}])
    5
    """

    initial: State
    apply: Callable[[State, Any], State]
    _: KW_ONLY
    events: EventCodec | None = None
    """Turns events into payloads and back; without it, `apply` gets payloads and decisions return them."""
    tags: Callable[[Any], Iterable[str]] | None = None
    """The tags of an event."""
    snapshot_every: int | None = None
    """Saves a snapshot when this many events came after the last one; None saves none."""
    state_type: Any = None
    """The type of the state, if it is not that of `initial`: for snapshots."""
    state_version: int = 1
    """Raise it when the form of the state changes: snapshots of other versions are ignored."""
    encode_state: Callable[[State], Payload] | None = None
    decode_state: Callable[[Payload], State] | None = None
    """How snapshots hold the state; without them, JSON as pydantic writes it."""

    def __post_init__(self) -> None:
        if self.snapshot_every is not None and self.snapshot_every < 1:
            raise ValidationError("snapshot_every", f"{self.snapshot_every!r} is not a number of events.")
        if (self.encode_state is None) != (self.decode_state is None):
            raise ConfigurationError("An entity has encode_state and decode_state, or neither.", hint="Give both.")

    def fold(self, state: State, events: Iterable[Any]) -> State:
        """The state after events."""
        for event in events:
            state = self.apply(state, event)
        return state


@dataclass(frozen=True, slots=True)
class Recovered(Generic[State]):
    """The state of an entity at one mark."""

    state: State
    seq_nr: SeqNr
    """Where its journal ends, 0 for none."""
    covered: SeqNr
    """Up to where the snapshot reaches that it was recovered from, 0 for none."""
    marked: MarkedMoment = field(repr=False)


@dataclass(frozen=True, slots=True)
class Updated(Generic[State]):
    """The state after an update, and what that has appended."""

    state: State
    seq_nr: SeqNr
    """Where the journal ends, 0 for none."""
    events: tuple[Any, ...] = ()
    """The events that were appended, as `apply` got them; empty if nothing was to be done."""
    place: PartitionOffset | None = None
    """The place of their record; None if there is none."""
    attempts: int = 1
    """How often it was decided."""


class AppendOptions(NamedTuple):
    """What an append may have beside its events; see `Journal.append`."""

    expire_after: timedelta | None = None
    metadata: object = None
    data: object = None
    headers: Mapping[str, str] = {}


class Update(Generic[State]):
    """One update of one entity: the steps of the loop. The caller makes the decisions, and the pauses."""

    def __init__(
        self, journal: Journal, entity: Entity[State], *, attempts: int = ATTEMPTS, about: AppendOptions | None = None
    ) -> None:
        if attempts < 1:
            raise ValidationError("attempts", f"{attempts!r} is not a number of attempts.")
        self._journal = journal
        self._entity = entity
        self._limit = attempts
        self._about = about or AppendOptions()
        self._attempts = 0
        self._began = 0.0

    def recover(self) -> Recovered[State] | DecideAgain:
        """The state that is to be decided on."""
        self._attempts += 1
        self._began = perf_counter()
        try:
            return recover_state(self._journal, self._entity)
        except JournalChangedError as error:
            return self._continue(error)

    def append(self, recovered: Recovered[State], decided: Decided) -> Updated[State] | DecideAgain:
        """Appends what was decided on a state."""
        journal, entity = self._journal, self._entity
        events = number_events(entity, recovered.seq_nr, decided)
        if not events:
            return Updated(recovered.state, recovered.seq_nr, attempts=self._attempts)
        # Before anything is written, so that an error of the application's own functions leaves nothing behind.
        applied = tuple(as_read(entity, journal.key, events))
        state, end = entity.fold(recovered.state, applied), events[-1].seq_nr
        snapshot = encode_state(entity, state) if is_snapshot_due(entity, recovered.covered, end) else None
        append_id, sent = uuid4().hex, 0
        while True:
            try:
                sent += 1
                appended = journal.append_on(recovered.marked, events, append_id, self._about)
                break
            except (SeqNrConflictError, TransientError) as error:
                step = after_failed_append(error, sent)
                if isinstance(step, Raise):
                    raise step.error from error
                if isinstance(step, DecideAgain):
                    return self._continue(error)
        if snapshot is not None:
            try:
                journal.save_snapshot(end, snapshot, metadata={_VERSION: entity.state_version}, life=appended.life)
            except InorderError as error:
                fields = {"journal": str(journal.key), "seq_nr": end, "error": str(error)}
                log.warning("journal.snapshot_not_saved", extra=fields)
        return Updated(state, end, applied, appended.place, self._attempts)

    def _continue(self, error: InorderError) -> DecideAgain:
        took = perf_counter() - self._began
        step = after_conflict(self._journal.key, self._attempts, self._limit, took, random.random())  # noqa: S311 - a pause
        if isinstance(step, Raise):
            raise step.error from error
        return step


def recover_state(journal: Journal, entity: Entity[State]) -> Recovered[State]:
    """The entity's state, from the latest snapshot that can be used and the events after it."""
    found = journal.recover(ANY_SNAPSHOT)
    latest, start = found.snapshot, _decode_state(entity, journal.key, found.snapshot)
    while found.snapshot is not None and start is None:
        found = journal.recover(_find_usable(journal, entity, found))
        start = _decode_state(entity, journal.key, found.snapshot)
    if latest is not None and start is None:
        _require_whole(journal.key, entity, latest, found)
    state = deepcopy(entity.initial) if start is None else start[0]
    decode = payload_of if entity.events is None else entity.events.decode
    state = entity.fold(state, (decode(journal.key, record.event) for record in found.events))
    covered = 0 if start is None or found.snapshot is None else found.snapshot.seq_nr
    return Recovered(state, found.marked.moment.plan.pointer or 0, covered, found.marked)


class SendAgain(NamedTuple):
    """The same append may be sent again, under the same id."""


class DecideAgain(NamedTuple):
    """The last decision is void: recover and decide again, after a pause."""

    pause_seconds: float = 0.0


class Raise(NamedTuple):
    """There is no way to continue."""

    error: InorderError


def after_failed_append(error: SeqNrConflictError | TransientError, sent: int) -> SendAgain | DecideAgain | Raise:
    """How to continue after an append failed that was sent so many times."""
    if isinstance(error, SeqNrConflictError):
        return DecideAgain()
    if isinstance(error, TopicUnavailableError):
        return Raise(error)
    if sent < SEND_ATTEMPTS:
        return SendAgain()
    hint = "The events may count. Update again only if `decide` recognises from the state that they do."
    return Raise(UnknownOutcomeError(error.message, hint=hint))


def after_conflict(key: Key, attempts: int, limit: int, took: float, chance: float) -> DecideAgain | Raise:
    """How to continue after another writer came first; `took` is the time of the last attempt, `chance` below 1.

    Writers that collide again and again wait for longer and longer spans, of which each takes a random part.
    """
    if attempts < limit:
        return DecideAgain(min(_LONGEST_PAUSE, chance * took * 2**attempts))
    return Raise(
        UpdateConflictError(
            f"The journal {key} was changed by other writers during each of {attempts} attempts to update it;"
            " nothing was appended.",
            hint="Update it again later, allow more attempts, or let fewer writers update this journal.",
            attempts=attempts,
        )
    )


def is_snapshot_due(entity: Entity[Any], covered: SeqNr, end: SeqNr) -> bool:
    """Whether a journal that ends at a number, with its last snapshot at another, is to get a snapshot."""
    return entity.snapshot_every is not None and end - covered >= entity.snapshot_every


def number_events(entity: Entity[Any], end: SeqNr, decided: Decided) -> list[Event]:
    """The events of a decision, as they follow the end of a journal."""
    if isinstance(decided, str | bytes | Mapping):
        kind = type(decided).__name__
        raise ValidationError("decide", f"it returned one {kind}, not events.", hint="Return a list of events.")
    return [
        Event(
            number,
            event if entity.events is None else entity.events.encode(event),
            frozenset() if entity.tags is None else frozenset(entity.tags(event)),
        )
        for number, event in enumerate(decided or (), end + 1)
    ]


def as_read(entity: Entity[Any], key: Key, events: list[Event]) -> Iterable[Any]:
    """Events as a later recovery will find them, once they are written."""
    decode = payload_of if entity.events is None else entity.events.decode
    return [decode(key, event) for event in from_value(*to_value(events, PayloadMetadata())).events]


def payload_of(key: Key, event: Event) -> Payload:  # noqa: ARG001 - the signature of a codec
    return event.payload


def encode_state(entity: Entity[Any], state: Any) -> Payload:
    """The payload of a snapshot; raises `ConfigurationError` for a state that cannot be written."""
    if entity.encode_state is not None:
        return entity.encode_state(state)
    kind: Any = entity.state_type or type(entity.initial)
    try:
        return json_payload(to_json(kind, state))
    except Exception as error:
        raise ConfigurationError(
            f"A state of type {type(state).__name__} cannot be written as JSON of {kind!r}: {error}",
            hint="Give the entity `state_type`, or `encode_state` and `decode_state`.",
        ) from error


def _find_usable(journal: Journal, entity: Entity[Any], found: Recovery) -> SnapshotCriteria:
    """The latest snapshot before the one that was found, and cannot be used, that can; else none at all."""
    end = 0 if found.snapshot is None else found.snapshot.seq_nr
    for each in journal.snapshots():
        is_next = each.seq_nr < end and not has_hole(found.marked.moment.plan, each)
        if is_next and _decode_state(entity, journal.key, each) is not None:
            return SnapshotCriteria(max_seq_nr=each.seq_nr)
    return _NO_SNAPSHOT


def _decode_state(entity: Entity[State], key: Key, snapshot: Snapshot | None) -> tuple[State] | None:
    """The state of a snapshot; None if there is none, or it cannot be used."""
    if snapshot is None:
        return None
    version = snapshot.metadata.get(_VERSION) if isinstance(snapshot.metadata, Mapping) else None
    if version != entity.state_version:
        return None
    try:
        if entity.decode_state is not None:
            return (entity.decode_state(snapshot.payload),)
        kind: Any = entity.state_type or type(entity.initial)
        return (from_json(kind, json_value(snapshot.payload)),)
    except Exception as error:  # noqa: BLE001 - whatever the application's types raise; the events have it all
        fields = {"journal": str(key), "seq_nr": snapshot.seq_nr, "error": str(error)}
        log.warning("journal.snapshot_unreadable", extra=fields)
        return None


def _require_whole(key: Key, entity: Entity[Any], unused: Snapshot, found: Recovery) -> None:
    plan = found.marked.moment.plan
    if plan.life is not None and plan.life.is_begun and has_hole(plan, None):
        raise SnapshotTooOldError(
            f"The snapshot of {key} at {unused.seq_nr} cannot be used for states of version {entity.state_version},"
            f" and the events up to {plan.life.delete_to} are deleted.",
            hint="Recover it with the code that saved it, and save the state in the new form with the new version.",
            seq_nr=unused.seq_nr,
            delete_to=plan.life.delete_to,
        )
