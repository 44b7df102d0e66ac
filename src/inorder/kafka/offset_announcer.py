"""Publishes how far a store is, without ever holding up whoever replicates.

A thread of its own sends what is newest for each partition, at once, and rests for a few milliseconds; what comes
meanwhile replaces what waits. So a lone slice is announced right after its commit, many small ones cost few records,
and whatever happens to Kafka, no more waits here than one offset a partition.

A notice is a hint. It need not survive a broker, so one replica's answer is enough; one that could not be sent is tried
again a second later, unless there is a newer one. That this is so is logged once, and once when it is over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.journal.reading.notice import Notice
from inorder.kafka.admin import Cluster
from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.errors import words
from inorder.kafka.topics import ensure_compacted_topic
from inorder.model.errors import InorderError
from inorder.ports.partition_reader import Place

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
    # Less than a flush waits, so that after one the fate of everything is known.
    "message.timeout.ms": 2_000,
}


@dataclass(frozen=True, slots=True)
class OffsetAnnouncers:
    """Opens announcers in whichever process calls it; it travels pickled, and equal ones open equal announcers."""

    properties: tuple[tuple[str, Any], ...] = field(repr=False)
    """Not shown, as they may hold a password."""
    topic: str
    store: str

    @classmethod
    def of(cls, properties: Mapping[str, Any], topic: str, store: str) -> OffsetAnnouncers:
        """To a topic of a cluster, for the store of a name."""
        return cls(tuple(sorted(properties.items())), topic, store)

    def __call__(self) -> OffsetAnnouncer:
        return OffsetAnnouncer(dict(self.properties), self.topic, self.store)


class OffsetAnnouncer:
    """An `Announcer` on Kafka; nothing connects before there is something to tell."""

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
        """Leaves it to the thread."""
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
        """Lets the thread send what waits, and end; a broker that is away is not waited for."""
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
            self._tell(reason)
            if left:
                producer = None  # the topic may be gone: the next one looks, and makes it
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
        # Asked first, since making it needs a right that nothing else of ours does.
        if Cluster(self._properties).partitions(self._topic) is None:
            ensure_compacted_topic(self._properties, self._topic, 1)
        return Producer({**self._properties, **OURS}, logger=CLIENT_LOG)

    def _send(self, producer: Producer, due: Mapping[Place, int]) -> tuple[dict[Place, int], str]:
        """Sends and waits for the answers; what could not be sent, and why."""
        left, reasons = dict(due), [""]

        def note(place: Place, error: KafkaError | None) -> None:
            if error is None:
                del left[place]
            else:
                reasons.append(words(error))

        for place, offset in due.items():
            notice = Notice(self._store, place, offset)

            def on_delivery(error: KafkaError | None, _: Message, place: Place = place) -> None:
                note(place, error)

            # One partition, so that the newest notice of a key is the last.
            producer.produce(self._topic, notice.value(), notice.key(), partition=0, on_delivery=on_delivery)
        producer.flush(_FLUSH_SECONDS)
        return left, reasons[-1] or ("no answer in time." if left else "")

    def _tell(self, reason: str) -> None:
        if reason and not self._is_failing:
            log.warning("journal.offsets_not_announced topic=%s reason=%s", self._topic, reason)
        elif not reason and self._is_failing:
            log.info("journal.offsets_announced_again topic=%s", self._topic)
        self._is_failing = bool(reason)
