"""What a shard's log does about a client that is wrong about a broker which was away, and how long it waits for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from inorder.kafka import fenced_producer
from inorder.kafka.fenced_producer import Timeouts
from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import FencedError, TopicUnavailableError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.stores import kafka_log
from inorder.relay.stores.kafka_log import BATCH_NAME, LETTERS, MOST_FAILURES, KafkaShardLog, MarkerRecord

TOPIC = "orders"
LONGEST_SECONDS = 30.0
"""How long a shard may stand still after the broker is back."""

UNKNOWN = KafkaError(KafkaError._UNKNOWN_TOPIC)
UNSETTLED = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False)
UNDELIVERED = KafkaError(KafkaError._INCONSISTENT, "2 messages failed", False, False, True)
OVERTAKEN = KafkaError(KafkaError._FENCED, "another one", True, False, False)


@dataclass
class Broker:
    """What lasts when clients come and go: the last committed marker, and the time."""

    committed: MarkerRecord = field(default_factory=MarkerRecord)
    clients: list[Client] = field(default_factory=list)
    now: float = 0.0
    missing: KafkaError | None = None
    """What it says of the topic."""
    wrong: tuple[KafkaError, str] | None = None
    """What clients that are made now get wrong, and at which step."""

    def monotonic(self) -> float:
        return self.now

    def made(self, _properties: dict[str, Any], **_: object) -> Client:
        self.clients.append(Client(self, self.wrong))
        return self.clients[-1]


class Client:
    """A producer that obeys, or makes the same mistake each time."""

    def __init__(self, broker: Broker, wrong: tuple[KafkaError, str] | None) -> None:
        self._broker = broker
        self.wrong = wrong
        self._marker = MarkerRecord()

    def init_transactions(self, _seconds: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _seconds: float) -> None: ...

    def purge(self, *, in_flight: bool) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self._broker.missing, partitions={0: None})})

    def produce(self, topic: str, value: bytes, *_: object, **options: Any) -> None:
        if topic != TOPIC:
            self._fail_at("marker")
            self._marker = MarkerRecord(value, dict(options["headers"])[BATCH_NAME])

    def produce_batch(self, topic: str, messages: list[dict[str, object]], partition: int) -> int:
        assert (topic, partition) == (TOPIC, -1)
        return len(messages)

    def commit_transaction(self, seconds: float) -> None:
        if self.wrong and self.wrong[1] == "commit":
            self._broker.now += seconds
        self._fail_at("commit")
        self._broker.committed = self._marker

    def _fail_at(self, step: str) -> None:
        if self.wrong and self.wrong[1] == step:
            raise KafkaException(self.wrong[0])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(fenced_producer, "Producer", made.made)
    monkeypatch.setattr(fenced_producer, "time", made)
    monkeypatch.setattr(kafka_log, "ensure_compacted_topic", lambda *_: None)
    monkeypatch.setattr(kafka_log, "read_last_marker", lambda *_: made.committed)
    return made


@pytest.fixture
def log(broker: Broker) -> KafkaShardLog:
    assert not broker.clients
    made = KafkaShardLog({}, group="g")
    made.take_over()
    return made


@pytest.fixture
def rows() -> Iterator[list[OutboxRow]]:
    return ([OutboxRow(id, TOPIC, b"k", b"v", (), None, None)] for id in itertools.count(1))


def be_wrong(broker: Broker, error: KafkaError, step: str) -> None:
    """All clients that there are make this mistake from now on; new ones do not."""
    for client in broker.clients:
        client.wrong = error, step


@pytest.mark.parametrize(("error", "step"), [(UNKNOWN, "marker"), (UNDELIVERED, "commit")])
def test_a_client_that_was_misled_while_the_broker_was_away_is_replaced_after_two_failures(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]], error: KafkaError, step: str
) -> None:
    require_delivered(log.publish(next(rows), b"first"))
    be_wrong(broker, error, step)
    batch = next(rows)
    for _ in range(MOST_FAILURES):
        with pytest.raises(TransientError):
            require_delivered(log.publish(batch, b"second"))
    assert len(broker.clients) == len(LETTERS), "one failure may be the broker's"
    require_delivered(log.publish(batch, b"second"))
    assert broker.committed.value == b"second"
    assert len(broker.clients) == 2 * len(LETTERS)


def test_failures_that_are_not_in_a_row_replace_nothing(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    for _ in range(3 * MOST_FAILURES):
        be_wrong(broker, UNDELIVERED, "commit")
        with pytest.raises(TransientError):
            require_delivered(log.publish(next(rows), b"m"))
        for client in broker.clients:
            client.wrong = None
        require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_a_topic_that_is_missing_is_no_fault_of_the_client(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    broker.missing = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for _ in range(3 * MOST_FAILURES):
        with pytest.raises(TopicUnavailableError):
            require_delivered(log.publish(next(rows), b"m"))
    broker.missing = None
    require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_an_owner_that_was_overtaken_does_not_fence_the_next_one_however_often_it_tries(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, OVERTAKEN, "commit")
    for _ in range(3 * MOST_FAILURES):
        with pytest.raises(FencedError):
            require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_a_replaced_client_does_not_go_on_behind_an_owner_who_committed_in_between(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, UNDELIVERED, "commit")
    for _ in range(MOST_FAILURES):
        with pytest.raises(TransientError):
            require_delivered(log.publish(next(rows), b"m"))
    broker.committed = MarkerRecord(b"theirs", b"other.1")
    with pytest.raises(FencedError):
        require_delivered(log.publish(next(rows), b"m"))
    assert broker.committed.value == b"theirs"


def test_a_commit_that_is_never_answered_does_not_hold_the_shard_for_half_a_minute(
    broker: Broker, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, UNSETTLED, "commit")
    with pytest.raises(UnknownOutcomeError):
        require_delivered(log.publish(next(rows), b"m"))
    assert Timeouts().commit <= broker.now < LONGEST_SECONDS
    log.take_over()
    require_delivered(log.publish(next(rows), b"after"))
    assert broker.committed.value == b"after"
