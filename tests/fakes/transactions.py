"""Kafka's transactions in memory, under the real producers: ids, epochs, and requests that arrive late.

`MemoryTransactions` is the broker's side: an id has an epoch and at most one open transaction, a request of another
epoch is refused, and one that repeats the last end of a transaction succeeds. It cannot tell two transactions of one
epoch apart; that is why late requests do harm. `MemoryClient` takes the place of the Kafka client. Like it, it repeats
a request that is not answered after its back-off, and says nothing about that. Time passes only where a call takes
some. `tests/fault/test_delayed_requests.py` shows the same on a real broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from inorder.kafka import fenced_producer
from inorder.relay.stores import kafka_log
from inorder.relay.stores.kafka_log import BATCH_NAME, MarkerRecord

JITTERED = 0.8
"""The share of its back-off that the client waits at least."""


class Record(NamedTuple):
    """A record, or an offset that a transaction commits, which has the name of its group as its topic."""

    topic: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class EndTxn(NamedTuple):
    """The request that ends a transaction."""

    id: str
    epoch: int
    is_commit: bool


@dataclass
class IdState:
    """A transactional id as its coordinator knows it."""

    epoch: int = 0
    topics: set[str] = field(default_factory=set)
    """Those that take part in the open transaction; none is open if there are none."""
    sent: list[Record] = field(default_factory=list)
    """Its records."""
    was_committed: bool | None = None
    """How the last transaction of this epoch ended."""


@dataclass
class MemoryTransactions:
    """The broker, what lasts when clients come and go, and the time."""

    committed: list[Record] = field(default_factory=list)
    ids: dict[str, IdState] = field(default_factory=dict)
    clients: list[MemoryClient] = field(default_factory=list)
    now: float = 0.0
    trip_seconds: float = 0.005
    """How long a request takes until it is answered."""
    late: list[EndTxn] = field(default_factory=list)
    """Requests that were held back and have not arrived."""
    holds: int = 0
    """How many of the next requests to end a transaction are held back."""
    late_in: int = 0
    """After how many more requests all late ones arrive; 0 is never."""
    missing: KafkaError | None = None
    """What it says of a topic."""
    wrong: tuple[KafkaError, str] | None = None
    """What clients that are made now get wrong, and at which step."""

    def monotonic(self) -> float:
        return self.now

    def make_client(self, properties: Mapping[str, Any], **_: object) -> MemoryClient:
        self.clients.append(MemoryClient(self, properties, self.wrong))
        return self.clients[-1]

    def initialise(self, id: str) -> int:
        """Aborts what is open, and fences every earlier holder."""
        state = self.ids.setdefault(id, IdState())
        self.ids[id] = IdState(state.epoch + 1)
        return state.epoch + 1

    def add_topic(self, id: str, epoch: int, topic: str) -> None:
        """Begins a transaction with a topic, or adds one."""
        self._fenced(id, epoch).topics.add(topic)
        self._pass_time()

    def append(self, id: str, epoch: int, record: Record) -> None:
        """Takes a record, if its topic is known to take part."""
        state = self._fenced(id, epoch)
        if record.topic not in state.topics:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "not in it", False, False, True))
        state.sent.append(record)
        self._pass_time()

    def _pass_time(self) -> None:
        if self.late_in:
            self.late_in -= 1
            if not self.late_in:
                self.deliver_late()

    def send_end(self, request: EndTxn, backoff_seconds: float) -> None:
        """What a client does: it sends the request, and again if it is not answered."""
        if self.holds:
            self.holds -= 1
            self.late.append(request)
            self.now += JITTERED * backoff_seconds
        self.now += self.trip_seconds
        self.end(request)

    def end(self, request: EndTxn) -> None:
        state = self._fenced(request.id, request.epoch)
        if not state.topics:
            if state.was_committed is not request.is_commit:
                raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "nothing to end", True, False, False))
            return
        if request.is_commit:
            self.committed += state.sent
        self.ids[request.id] = IdState(request.epoch, was_committed=request.is_commit)

    def deliver_late(self) -> None:
        """The late requests arrive; what the broker answers goes nowhere."""
        arriving, self.late = self.late, []
        for each in arriving:
            with suppress(KafkaException):
                self.end(each)

    def values(self, topic: str) -> list[bytes]:
        return [record.value for record in self.committed if record.topic == topic]

    def last_marker(self, topic: str) -> MarkerRecord:
        found = [record for record in self.committed if record.topic == topic]
        return MarkerRecord(found[-1].value, dict(found[-1].headers)[BATCH_NAME]) if found else MarkerRecord()

    def _fenced(self, id: str, epoch: int) -> IdState:
        state = self.ids[id]
        if epoch != state.epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "another one", True, False, False))
        return state


class MemoryClient:
    """The part of the Kafka client that a fenced producer calls; it obeys, or makes the same mistake each time."""

    def __init__(
        self, broker: MemoryTransactions, properties: Mapping[str, Any], wrong: tuple[KafkaError, str] | None
    ) -> None:
        self.properties = properties
        self.wrong = wrong
        self._broker = broker
        self._id = str(properties["transactional.id"])
        self._epoch = 0
        self._topics: set[str] = set()

    def init_transactions(self, _seconds: float) -> None:
        self._epoch = self._broker.initialise(self._id)

    def begin_transaction(self) -> None:
        self._topics.clear()

    def produce(self, topic: str, value: bytes, *_: object, **options: Any) -> None:
        if topic.endswith(".marker"):
            self._fail_at("marker")
        self._add(Record(topic, value, tuple(options.get("headers", ()))))
        if report := options.get("on_delivery"):
            report(None, SimpleNamespace(offset=lambda: 0))

    def produce_batch(self, topic: str, messages: Sequence[Mapping[str, Any]], partition: int = -1) -> int:
        assert partition == -1
        for message in messages:
            self._add(Record(topic, message["value"]))
        return len(messages)

    def send_offsets_to_transaction(self, offsets: Sequence[Any], group: object, _seconds: float) -> None:
        self._fail_at("offsets")
        self._broker.now += self._broker.trip_seconds
        for place in offsets:
            self._add(Record(str(group), str(place.offset).encode()))

    def flush(self, seconds: float) -> int:
        """All is acknowledged at once, unless that is what goes wrong."""
        if self.wrong and self.wrong[1] == "deliver":
            self.properties["on_delivery"](KafkaError(KafkaError._MSG_TIMED_OUT), None)
        if self.wrong and self.wrong[1] == "flush":
            self._broker.now += seconds
            return 1
        return 0

    def commit_transaction(self, seconds: float) -> None:
        self._fail_at("deliver")
        self._fail_at("commit", seconds)
        self._end(is_commit=True)

    def abort_transaction(self, seconds: float) -> None:
        self._fail_at("abort", seconds)
        self._end(is_commit=False)

    def purge(self, *, in_flight: bool) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self._broker.missing, partitions={0: None})})

    def _add(self, record: Record) -> None:
        if record.topic not in self._topics:
            self._topics.add(record.topic)
            self._broker.add_topic(self._id, self._epoch, record.topic)
        self._broker.append(self._id, self._epoch, record)

    def _end(self, *, is_commit: bool) -> None:
        if self._topics:
            backoff = self.properties["retry.backoff.ms"] / 1000
            self._broker.send_end(EndTxn(self._id, self._epoch, is_commit), backoff)

    def _fail_at(self, step: str, seconds: float = 0.0) -> None:
        if self.wrong and self.wrong[1] == step:
            self._broker.now += seconds
            raise KafkaException(self.wrong[0])


def install(broker: MemoryTransactions, patch: pytest.MonkeyPatch) -> None:
    """Puts clients of this broker, and its clock, under the fenced producers and the shard's log."""
    patch.setattr(fenced_producer, "Producer", broker.make_client)
    patch.setattr(fenced_producer, "time", broker)
    patch.setattr(kafka_log, "ensure_compacted_topic", lambda *_: None)
    patch.setattr(kafka_log, "read_last_marker", lambda _properties, topic, _partition: broker.last_marker(topic))
    patch.setattr(kafka_log, "require_settled", lambda *_: None)
