"""`inorder verify run`: publishes marked events through a running installation, and records what becomes of them.

Several writers publish into the outbox of the settings as an application does, in transactions with several keys: most
commit, some roll back, some stay open while later ones commit. A key is published by one writer at a time, who waits
for the answer to its COMMIT first, so the order of a key's events is known (`history.py` says what follows from it).
A consumer of its own reads the topic; where the topic feeds a table, the rows are looked at as well. After the last
COMMIT the run waits until everything has arrived and the outbox is empty, and reads the topic once more to its end:
behind the last open transaction, so a topic in which another producer holds one open is not read to its end, and the
verdict is unknown.

The run may be made while servers are killed: a transaction that fails before its COMMIT is rolled back, one whose
COMMIT fails is unanswered, and the writer connects again.

**Nothing stays behind.** By default the events go to a topic of their own, which is deleted with its rows in the outbox
and its lock. In a topic of yours the records stay until its retention removes them; rows of the table are deleted by
records without a value, also by a job that starts later, or by a DELETE where the table does not follow those.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from inorder.model.errors import ConfigurationError, InorderError, TransientError, UnreachableError
from inorder.model.message import Message
from inorder.outbox.append import WRITABLE_LAYOUTS
from inorder.outbox.outbox import Outbox
from inorder.settings import Settings
from inorder.settings.pipeline import UpsertSettings
from inorder.verify.history import (
    UNREADABLE,
    CommitAnswer,
    History,
    MarkedEvent,
    Operation,
    RecordRead,
    RowRead,
    TopicRead,
    TransactionBegun,
    TransactionEnded,
)
from inorder.verify.stores.database import ApplicationConnection, OwnRows, RowId, WatchedTable
from inorder.verify.stores.kafka_topic import TopicReader, create_topic, delete_topic

PARTITIONS: Final = 3
_MOST_KEYS: Final = 4
"""In one transaction."""
_ROLLED_BACK: Final = 0.15
_HELD_OPEN: Final = 0.05
_HELD_SECONDS: Final = 0.3
_POLL_SECONDS: Final = 0.2
_RECONNECT_SECONDS: Final = 0.2
_CLEAN_SECONDS: Final = 60.0
"""For the relay to publish records without a value, and for the job to apply them."""


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """How much is published, and how long the run waits for it."""

    events: int = 1000
    keys: int = 20
    writers: int = 4
    seconds: float = 60.0
    """For everything to arrive, after the last COMMIT; also for a server that does not answer."""
    topic: str | None = None
    """None for a topic of its own."""


@dataclass(frozen=True, slots=True)
class Marks:
    """How events are written into messages, so that records and rows can be recognised."""

    topic: str
    ids: Mapping[str, RowId]
    """By record key the value of the key field."""
    key_field: str = "id"
    place_field: str = "place"
    fields: Mapping[str, str] = field(default_factory=lambda: {"place": "bigint"})

    def message(self, event: MarkedEvent) -> Message:
        samples = {name: _sample(kind, event.place) for name, kind in self.fields.items()}
        return Message(self.topic, key=event.key, value={self.key_field: self.ids[event.key], **samples})

    def event_of(self, key: bytes | None, value: bytes | None) -> MarkedEvent | None:
        """The event of a record, at an impossible place if its value shows none; None for a record of others."""
        text = (key or b"").decode("utf-8", "replace")
        if text not in self.ids:
            return None
        try:
            shown = json.loads(value or b"")[self.place_field]
        except (ValueError, LookupError, TypeError):
            return MarkedEvent(text, UNREADABLE)
        return MarkedEvent(text, place_of(shown))


def place_of(shown: object) -> int:
    """The place in a field, which may be a text."""
    try:
        return int(str(shown).rpartition(" ")[2])
    except ValueError:
        return UNREADABLE


def _sample(kind: str, place: int) -> object:
    samples: dict[str, object] = {
        "boolean": place % 2 == 0,
        "double": float(place),
        "text": f"event {place}",
        "timestamp": "2000-01-01T00:00:00Z",
        "date": "2000-01-01",
        "uuid": str(uuid.UUID(int=place)),
        "json": {"place": place},
    }
    return samples.get(kind, place)


_SHOWS_PLACE: Final = ("bigint", "integer", "text")


def mark(settings: Settings, plan: VerifyPlan, chance: random.Random) -> tuple[Marks, WatchedTable | None]:
    """How the events of a run are marked, and the table to look at where the topic feeds one."""
    if settings.relay.layout not in WRITABLE_LAYOUTS:
        raise ConfigurationError(
            f"Nothing of inorder writes rows of the layout {settings.relay.layout!r}, so there is nothing to verify.",
            hint=f"Layouts that can be verified: {', '.join(WRITABLE_LAYOUTS)}.",
        )
    target = next((each for each in settings.pipeline.targets if each.topic == plan.topic), None)
    if target is None:
        run = f"{chance.getrandbits(40):010x}"
        ids: dict[str, RowId] = {f"verify-{run}-{number}": number for number in range(plan.keys)}
        return Marks(plan.topic or f"inorder-verify-{run}", ids), None
    [key, *more], place = target.key, _place_field(target)
    if more or place is None or target.mode != "upsert":
        raise ConfigurationError(
            f"The table {target.table!r} cannot show which event was applied last.",
            hint="It needs the mode upsert, a key of one column, and a field of the type bigint, integer or text. "
            "Without --topic the relay alone is verified.",
        )
    ids = {str(id): id for id in _ids(target.key_type[0], plan.keys, chance)}
    return Marks(target.topic, ids, key, place, dict(target.fields)), WatchedTable(target.table, key, place)


def _place_field(target: UpsertSettings) -> str | None:
    return next((name for kind in _SHOWS_PLACE for name, found in target.fields.items() if found == kind), None)


def _ids(kind: str, keys: int, chance: random.Random) -> Iterator[RowId]:
    """Keys that no application has: negative numbers far from zero, or names of this run."""
    run = chance.getrandbits(40)
    base = {"bigint": run << 16, "integer": chance.randrange(2**29, 2**30)}.get(kind, 0)
    for number in range(keys):
        if kind == "uuid":
            yield str(uuid.UUID(int=chance.getrandbits(128), version=4))
        else:
            yield f"verify-{run:010x}-{number}" if kind == "text" else -(base + number + 1)


@dataclass(frozen=True, slots=True)
class _Transaction:
    keys: tuple[str, ...]
    commits: bool
    is_held: bool


def _plan_transactions(plan: VerifyPlan, keys: Sequence[str], chance: random.Random) -> Iterator[_Transaction]:
    left = plan.events
    while left > 0:
        chosen = chance.sample(keys, min(left, len(keys), chance.randint(1, _MOST_KEYS)))
        left -= len(chosen)
        # Locks are taken in one order, so that writers wait for each other and never in a circle.
        yield _Transaction(tuple(sorted(chosen)), chance.random() >= _ROLLED_BACK, chance.random() < _HELD_OPEN)


class VerifyRun:
    """One verification; `execute` returns its history, and leaves nothing behind."""

    def __init__(
        self,
        settings: Settings,
        plan: VerifyPlan,
        *,
        kafka_topic_of: Callable[[str], str] = str,
        stop: threading.Event | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`kafka_topic_of` names the Kafka topic that carries a topic now; it is asked once."""
        self._settings = settings
        self._plan = plan
        self._chance = random.Random()  # noqa: S311 - a load, not a secret
        self._marks, self._table = mark(settings, plan, self._chance)
        self._kafka_topic_of = kafka_topic_of
        self._stop = stop or threading.Event()
        self._say = say
        self._url = settings.database.require_url()
        relay = settings.relay
        self._outbox = Outbox(relay.table, layout=relay.layout)
        self._operations: list[Operation] = []
        self._locks = {key: threading.Lock() for key in self._marks.ids}
        self._places = dict.fromkeys(self._marks.ids, 0)
        self._numbers = count(1)
        self._shown: dict[str, int | None] = {}
        self._committed: set[MarkedEvent] = set()
        self._arrived: set[MarkedEvent] = set()

    @property
    def about(self) -> dict[str, Any]:
        """What the file of the history says of the run."""
        return {"topic": self._marks.topic, "table": self._table.table if self._table else None}

    @property
    def history(self) -> History:
        """What was seen so far: of a run that ended with an error, up to there."""
        return History(tuple(self._operations), may_repeat=self._settings.relay.delivery == "at-least-once")

    def execute(self) -> History:
        properties, topic = self._settings.kafka.properties, self._marks.topic
        with ExitStack() as opened:
            rows = opened.enter_context(closing(OwnRows(self._url, self._settings.relay, topic, self._marks.ids)))
            if self._plan.topic is None:
                create_topic(properties, topic, PARTITIONS)
                opened.callback(delete_topic, properties, topic)
            kafka_topic = self._kafka_topic_of(topic)
            reader = opened.enter_context(closing(TopicReader(properties, kafka_topic, self._marks.event_of)))
            opened.callback(self._clean, rows, reader)
            self._require_no_rows(rows)
            self._say(f"Publishing {self._plan.events} events of {self._plan.keys} keys to topic {topic!r}.")
            with self._writing() as is_writing:
                while is_writing():
                    self._look(reader, rows)
            deadline = time.monotonic() + self._plan.seconds

            def is_over() -> bool:
                return time.monotonic() > deadline or self._stop.is_set()

            self._await_arrival(reader, rows, is_over)
            self._read_to_end(reader, rows, is_over)
        return self.history

    # Writing.

    @contextmanager
    def _writing(self) -> Iterator[Callable[[], bool]]:
        """Runs the writers; the block gets what says whether they are still at work."""
        work = deque(_plan_transactions(self._plan, list(self._marks.ids), self._chance))
        with ThreadPoolExecutor(self._plan.writers, thread_name_prefix="inorder-verify") as pool:
            writers = [pool.submit(self._write, work) for _ in range(self._plan.writers)]
            try:
                yield lambda: not all(writer.done() for writer in writers)
            finally:
                if not all(writer.done() for writer in writers):
                    work.clear()  # the reader failed
            for writer in writers:
                writer.result()

    def _write(self, work: deque[_Transaction]) -> None:
        connection = self._connect()
        try:
            while not self._stop.is_set():
                try:
                    planned = work.popleft()
                except IndexError:
                    return
                try:
                    self._transact(connection, planned)
                except TransientError:
                    connection.close()
                    connection = self._connect()
        finally:
            connection.close()

    def _connect(self) -> ApplicationConnection:
        deadline = time.monotonic() + self._plan.seconds
        while True:
            try:
                return ApplicationConnection(self._url, self._outbox)
            except TransientError:
                if time.monotonic() > deadline or self._stop.wait(_RECONNECT_SECONDS):
                    raise

    def _transact(self, connection: ApplicationConnection, planned: _Transaction) -> None:
        """One transaction; raises `TransientError` after it was recorded, if the connection is of no use any more."""
        number = next(self._numbers)
        with ExitStack() as held:
            for key in planned.keys:
                held.enter_context(self._locks[key])
                self._places[key] += 1
            events = tuple(MarkedEvent(key, self._places[key]) for key in planned.keys)
            self._operations.append(TransactionBegun(number, events))
            answer = CommitAnswer.ROLLED_BACK
            try:
                connection.publish([self._marks.message(event) for event in events])
                if planned.is_held:
                    self._stop.wait(_HELD_SECONDS)
                if planned.commits:
                    answer = CommitAnswer.UNANSWERED
                    connection.commit()
                    answer = CommitAnswer.COMMITTED
                    self._committed.update(events)
                else:
                    connection.roll_back()
            finally:
                self._operations.append(TransactionEnded(number, answer))

    # Reading.

    def _look(self, reader: TopicReader, rows: OwnRows) -> None:
        with suppress(TransientError):  # a server does not answer now; it is asked again
            for record in reader.poll(_POLL_SECONDS):
                self._note(record)
            if self._table is not None:
                self._look_at_rows(rows, self._table)

    def _note(self, record: RecordRead) -> None:
        self._operations.append(record)
        self._arrived.add(record.event)

    def _look_at_rows(self, rows: OwnRows, table: WatchedTable) -> None:
        found = rows.read(table)
        for key in self._marks.ids:
            place = place_of(found[key]) if key in found else None
            if key not in self._shown or self._shown[key] != place:
                self._shown[key] = place
                self._operations.append(RowRead(key, place))

    def _require_no_rows(self, rows: OwnRows) -> None:
        if self._table is not None and rows.read(self._table):
            raise ConfigurationError(
                f"The table {self._table.table!r} has rows with the keys that were chosen for this run.",
                hint="Run it again: it chooses others.",
            )

    def _await_arrival(self, reader: TopicReader, rows: OwnRows, is_over: Callable[[], bool]) -> None:
        while not self._has_arrived(rows) and not is_over():
            self._look(reader, rows)

    def _has_arrived(self, rows: OwnRows) -> bool:
        if not self._is_purged(rows):
            return False
        return self._table is None or self._is_applied()

    def _is_applied(self) -> bool:
        """Whether the table has shown the newest event of every key."""
        newest = {event.key: event.place for event in sorted(self._committed)}
        return all((self._shown.get(key) or 0) >= place for key, place in newest.items())

    def _is_purged(self, rows: OwnRows) -> bool:
        """Whether nothing of this run waits in the outbox, so that nothing more of it can arrive."""
        try:
            waiting = rows.waiting()
        except TransientError:
            return False
        # Where published rows stay, only the arrival of everything shows that nothing waits.
        return self._is_delivered() if waiting is None else waiting == 0

    def _is_delivered(self) -> bool:
        return not self._committed - self._arrived

    def _read_to_end(self, reader: TopicReader, rows: OwnRows, is_over: Callable[[], bool]) -> None:
        """The whole topic again, by another consumer: what the first one missed would look lost."""
        is_purged = self._is_purged(rows)
        with suppress(TransientError):  # the end was not reached, so nothing can be said of what was not seen
            if reader.read_again(self._note, is_over) and is_purged:
                self._operations.append(TopicRead())

    # Leaving nothing behind.

    def _clean(self, rows: OwnRows, reader: TopicReader) -> None:
        try:
            if self._table is not None:
                self._delete_rows(rows, reader, self._table)
            rows.withdraw(with_lock=self._plan.topic is None)
        except InorderError as error:
            raise UnreachableError(
                f"Rows of this verification may be left in {self._settings.relay.table!r}: {error.message}",
                hint=f"Their topic is {self._marks.topic!r}; delete them once the database answers.",
            ) from error

    def _delete_rows(self, rows: OwnRows, reader: TopicReader, table: WatchedTable) -> None:
        """By the pipeline, so that the table is empty whenever its job has applied the topic; then by itself.

        The records without a value must be in the topic behind every record that has arrived, whether the job runs or
        not: one that starts later applies both.
        """
        target = next(each for each in self._settings.pipeline.targets if each.table == table.table)
        is_published = is_deleted = False
        if target.deletes == "tombstone" and self._arrived:
            with closing(ApplicationConnection(self._url, self._outbox)) as connection:
                connection.publish([Message(self._marks.topic, key=key) for key in self._marks.ids])
                connection.commit()
            read: set[str] = set()
            deadline = time.monotonic() + _CLEAN_SECONDS
            while not (is_published and is_deleted) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                with suppress(TransientError):
                    read |= {each.event.key for each in reader.poll(0) if each.event.place == UNREADABLE}
                is_published = self._is_published(rows, read)
                is_deleted = not rows.read(table)
        rows.delete(table)
        if self._arrived and not (is_published and is_deleted and self._is_applied()):
            self._say(self._what_follows(table, is_published=is_published))

    def _is_published(self, rows: OwnRows, read: set[str]) -> bool:
        """Whether the relay has published the records without a value, of which these keys' were read."""
        waiting = rows.waiting()
        return read >= set(self._marks.ids) if waiting is None else waiting == 0

    def _what_follows(self, table: WatchedTable, *, is_published: bool) -> str:
        if is_published:
            return (
                f"The job of table {table.table!r} may not have applied all records of this verification. "
                "The last ones delete its rows."
            )
        return (
            f"The job of table {table.table!r} may still write rows of this verification, and no record deletes them. "
            f"Their values of {table.key!r} are {', '.join(str(id) for id in self._marks.ids.values())}."
        )
