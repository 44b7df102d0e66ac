"""Notices on Kafka of how far a store is: replicators announce offsets, readers that wait for the store follow them.

**Announcing** never blocks the replicator. A separate thread sends the newest offset of each partition at once and then
rests for a few milliseconds; what comes meanwhile replaces what waits. So a single slice is announced right after its
commit, many small ones cost few records, and whatever happens to Kafka, at most one offset a partition waits here. A
notice is a hint. It need not survive a broker, so one replica's answer is enough; one that could not be sent is sent
again a second later, unless there is a newer one. The failure is logged once, and once more when it is over.

**Following** is done for all readers of one `Journals`, on a thread that starts with the first wait. It begins at the
end of the topic and keeps nothing of what it reads. Earlier notices are of no use: a reader that waits has read the
store's offset, or is woken to do so once the end was found. The same after every failure, since notices may have come
meanwhile: the topic was deleted, created again, or the broker was unavailable. The store's name is read from the store
itself, and again when a wait timed out: the store may have been created again.

**A notice** is a record of a small compacted topic: the store of this name has everything of a partition up to an
offset. The key is `store/topic/partition`, so that the newest notice of each is kept and readers of another store skip
it; the value is `{"offset": 41}`. Unknown members of the value are ignored.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.journal.reading.reader import StoreWait
from inorder.journal.stores.kafka_log import PROPERTIES, KafkaTail
from inorder.journal.stores.opening import JournalStore
from inorder.journal.stores.ports import EventualJournal
from inorder.kafka.admin import Cluster, ensure_compacted_topic
from inorder.kafka.errors import CLIENT_LOG, describe
from inorder.model.errors import InorderError, TopicUnavailableError
from inorder.model.partitioning import Place
from inorder.settings.journal import JournalSettings

log = logging.getLogger("inorder.journal")

REST_SECONDS: Final = 0.005
RETRY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 3.0

OURS: Mapping[str, object] = {
    "linger.ms": 0,
    "acks": 1,
    "enable.idempotence": False,
    "queue.buffering.max.messages": 10_000,
    # A topic that the broker makes by itself is not compacted.
    "allow.auto.create.topics": False,
    # Less than a flush waits, so that after one the outcome of every record is known.
    "message.timeout.ms": 2_000,
}


@dataclass(frozen=True, slots=True)
class OffsetAnnouncers:
    """Opens announcers in the process that calls it; pickled, and equal ones open equal announcers."""

    properties: tuple[tuple[str, Any], ...] = field(repr=False)
    """Not shown, as they may hold a password."""
    topic: str
    store: str

    @classmethod
    def of(cls, properties: Mapping[str, Any], topic: str, store: str) -> OffsetAnnouncers:
        return cls(tuple(sorted(properties.items())), topic, store)

    def __call__(self) -> OffsetAnnouncer:
        return OffsetAnnouncer(dict(self.properties), self.topic, self.store)


class OffsetAnnouncer:
    """An `Announcer` on Kafka; connects with the first announcement."""

    def __init__(self, properties: Mapping[str, Any], topic: str, store: str) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._store = store
        self._changed = threading.Condition()
        self._pending: dict[Place, int] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._is_failing = False

    def announce(self, topic: str, partition: int, offset: int) -> None:
        with self._changed:
            place = topic, partition
            self._pending[place] = max(offset, self._pending.get(place, -1))
            if self._thread is None:
                self._closing = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._closing,), name="inorder-offset-announcer", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Lets the thread send what waits, and end; does not wait for an unavailable broker."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._closing.set()
            self._changed.notify()
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _run(self, closing: threading.Event) -> None:
        producer: Producer | None = None
        while due := self._take(closing):
            try:
                producer = producer or self._producer()
                left, reason = self._send(producer, due)
            except (InorderError, KafkaException, BufferError) as error:
                left, reason = due, str(error)
            self._log_failure(reason)
            if left:
                producer = None  # the topic may be gone: the next one creates it
                self._put_back(left)
            if closing.wait(RETRY_SECONDS if left else REST_SECONDS) and left:
                return

    def _take(self, closing: threading.Event) -> dict[Place, int]:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or closing.is_set())
            due, self._pending = self._pending, {}
            return due

    def _put_back(self, left: Mapping[Place, int]) -> None:
        with self._changed:
            for place, offset in left.items():
                self._pending[place] = max(offset, self._pending.get(place, -1))

    def _producer(self) -> Producer:
        # Checked first, since creating it needs a permission that nothing else of ours does.
        if Cluster(self._properties).partitions(self._topic) is None:
            ensure_compacted_topic(self._properties, self._topic, 1)
        return Producer({**self._properties, **OURS}, logger=CLIENT_LOG)

    def _send(self, producer: Producer, due: Mapping[Place, int]) -> tuple[dict[Place, int], str]:
        """Sends and waits for the answers; returns what could not be sent, and why."""
        left, reasons = dict(due), [""]

        def note(place: Place, error: KafkaError | None) -> None:
            if error is None:
                del left[place]
            else:
                reasons.append(describe(error))

        for place, offset in due.items():
            notice = OffsetNotice(self._store, place, offset)

            def on_delivery(error: KafkaError | None, _: Message, place: Place = place) -> None:
                note(place, error)

            # One partition, so that the newest notice of a key is the last.
            producer.produce(self._topic, notice.value(), notice.key(), partition=0, on_delivery=on_delivery)
        producer.flush(_FLUSH_SECONDS)
        return left, reasons[-1] or ("no answer in time." if left else "")

    def _log_failure(self, reason: str) -> None:
        if reason and not self._is_failing:
            log.warning("journal.offsets_not_announced", extra={"topic": self._topic, "reason": reason})
        elif not reason and self._is_failing:
            log.info("journal.offsets_announced_again", extra={"topic": self._topic})
        self._is_failing = bool(reason)


POLL_SECONDS: Final = 0.25
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
# The broker answers as soon as there is a notice; only an idle topic waits for so long.
_PATIENT: Mapping[str, object] = {**PROPERTIES, "fetch.wait.max.ms": 500, "enable.partition.eof": False}


class ReplicatedOffsets:
    """`OffsetNotices` from Kafka; `store` reads the name of the store, None as long as it has none."""

    def __init__(self, properties: Mapping[str, Any], topic: str, store: Callable[[], str | None]) -> None:
        # A topic that was deleted is for a replicator to make: one that the broker makes by itself is not compacted.
        self._properties = {**properties, "allow.auto.create.topics": False}
        self._topic = topic
        self._read_store_name = store
        self._store: str | None = None
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._store_is_doubtful = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_failing = False

    @contextmanager
    def listen(self, place: Place, offset: int) -> Iterator[threading.Event | None]:
        heard = threading.Event()
        with self._lock:
            if self._stopping.is_set() or not self._waiters.is_worth_it(place, offset):
                leave = None
            else:
                leave = self._waiters.add(place, offset, heard.set)
                self._start()
        if leave is None:
            yield None
            return
        try:
            yield heard
        finally:
            with self._lock:
                leave()

    def timed_out(self, place: Place, offset: int) -> None:
        with self._lock:
            self._waiters.timed_out(place, offset)
        self._store_is_doubtful.set()

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="inorder-replicated-offsets", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                with closing(KafkaTail(self._properties, self._topic, _PATIENT)) as tail:
                    self._begin(tail)
                    pause = _FIRST_PAUSE
                    self._follow(tail)
            except InorderError as error:
                self._log_failure(error)
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _begin(self, tail: KafkaTail) -> None:
        self._store = self._read_store_name()
        extents = Cluster(self._properties).extents(self._topic)
        if extents is None:
            text = f"Topic {self._topic!r} does not exist."
            raise TopicUnavailableError(self._topic, text, hint="A replicator of this version creates it.")
        tail.start({partition: extent.end for partition, extent in extents.items()})
        with self._lock:
            self._waiters.wake_all()
        self._is_failing = False

    def _follow(self, tail: KafkaTail) -> None:
        while not self._stopping.is_set():
            for records in tail.poll(POLL_SECONDS).values():
                for record in records:
                    self._receive(record.key, record.value)
            if self._store_is_doubtful.is_set():
                self._store_is_doubtful.clear()
                self._store = self._read_store_name()

    def _receive(self, key: bytes | None, value: bytes | None) -> None:
        notice = parse_notice(key, value)
        if notice is not None and notice.store == self._store:
            with self._lock:
                self._waiters.notify(notice.place, notice.offset)

    def _log_failure(self, error: InorderError) -> None:
        if not self._is_failing:
            log.warning("journal.notices_not_heard", extra={"topic": self._topic, "reason": str(error)})
        self._is_failing = True


class _Waiter(NamedTuple):
    offset: int
    wake: Callable[[], None]


class Waiters:
    """The readers that wait for offsets, and the waits that timed out; not safe for threads by itself."""

    def __init__(self) -> None:
        self._waiting: dict[Place, list[_Waiter]] = {}
        self._timed_out: dict[Place, int] = {}

    def is_worth_it(self, place: Place, offset: int) -> bool:
        """Whether to wait; an offset below the one that timed out means that the topic was re-created, so yes."""
        timed_out_at = self._timed_out.get(place)
        return timed_out_at is None or offset < timed_out_at

    def add(self, place: Place, offset: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` at each notice that reaches the offset; returns how to stop that."""
        waiter = _Waiter(offset, wake)
        self._waiting.setdefault(place, []).append(waiter)
        return lambda: self._leave(place, waiter)

    def notify(self, place: Place, offset: int) -> None:
        if offset >= self._timed_out.get(place, offset + 1):
            del self._timed_out[place]
        for waiter in tuple(self._waiting.get(place, ())):
            if waiter.offset <= offset:
                waiter.wake()

    def wake_all(self) -> None:
        """Wakes all, because notices may have been missed."""
        for waiters in tuple(self._waiting.values()):
            for waiter in tuple(waiters):
                waiter.wake()

    def timed_out(self, place: Place, offset: int) -> None:
        self._timed_out[place] = offset

    def _leave(self, place: Place, waiter: _Waiter) -> None:
        waiting = self._waiting[place]
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[place]


_PARTS = 3


@dataclass(frozen=True, slots=True)
class OffsetNotice:
    """How far a store is; a hint, since only the store is authoritative."""

    store: str
    place: Place
    offset: int

    def key(self) -> bytes:
        topic, partition = self.place
        return f"{self.store}/{topic}/{partition}".encode()

    def value(self) -> bytes:
        return json.dumps({"offset": self.offset}).encode()


def parse_notice(key: bytes | None, value: bytes | None) -> OffsetNotice | None:
    """The notice of a record; None for any other record.

    >>> parse_notice(b"9f/journal/3", b'{"offset": 41}')
    OffsetNotice(store='9f', place=('journal', 3), offset=41)
    """
    try:
        parts, found = (key or b"").decode().split("/"), json.loads(value or b"")
        offset = found["offset"] if isinstance(found, dict) else None
        if len(parts) != _PARTS or type(offset) is not int or not -1 <= offset < 2**63:
            return None
        partition = int(parts[2])
        return OffsetNotice(parts[0], (parts[1], partition), offset) if 0 <= partition < 2**31 else None
    except (ValueError, KeyError, RecursionError):
        return None


# Which of these a replicator and a reader use, by [journal].


def announcers(properties: Mapping[str, Any], journal: JournalSettings, store: JournalStore) -> OffsetAnnouncers | None:
    """What replicators of a store announce with; None without a topic, or where the store has no name."""
    name = store.identity() if journal.replicated_topic else None
    return None if name is None else OffsetAnnouncers.of(properties, journal.replicated_topic, name)


def replicated_offsets(
    properties: Mapping[str, Any], journal: JournalSettings, store: JournalStore
) -> ReplicatedOffsets | None:
    """What readers of a store listen with; None where they do not wait. Nothing connects yet."""
    if not journal.wait_for_store_ms:
        return None
    return ReplicatedOffsets(properties, journal.replicated_topic, store.identity)


def store_wait(journal: JournalSettings, store: EventualJournal, notices: ReplicatedOffsets | None) -> StoreWait | None:
    """How readers wait for a store."""
    if notices is None:
        return None
    return StoreWait(store, notices, time.monotonic, seconds=journal.wait_for_store_ms / 1000)
