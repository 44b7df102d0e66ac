"""What a shard's log does about a client that is wrong about a broker which was away, and how long it waits for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from inorder.kafka.fenced_producer import Timeouts
from inorder.kafka.shard_log import require_delivered
from inorder.kafka.topic_facts import TopicLimits
from inorder.model.errors import (
    FencedError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
)
from inorder.model.message import OutboxRow
from inorder.relay.stores.kafka_log import BATCH_NAME, LETTERS, MOST_FAILURES, KafkaShardLog
from tests.fakes.transactions import MemoryClient, MemoryTransactions, Record, install

TOPIC = "orders"
MARKERS = "inorder.g.marker"
LONGEST_SECONDS = 30.0
"""How long a shard may stand still after the broker is back."""

UNKNOWN = KafkaError(KafkaError._UNKNOWN_TOPIC)
UNSETTLED = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False)
UNDELIVERED = KafkaError(KafkaError._INCONSISTENT, "2 messages failed", False, False, True)
OVERTAKEN = KafkaError(KafkaError._FENCED, "another one", True, False, False)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryTransactions:
    made = MemoryTransactions()
    install(made, monkeypatch)
    return made


@pytest.fixture
def log(broker: MemoryTransactions) -> KafkaShardLog:
    assert not broker.clients
    made = KafkaShardLog({}, group="g")
    made.take_over()
    return made


@pytest.fixture
def rows() -> Iterator[list[OutboxRow]]:
    return ([OutboxRow(id, TOPIC, b"k", b"v", (), None, None)] for id in itertools.count(1))


def be_wrong(broker: MemoryTransactions, error: KafkaError, step: str) -> None:
    """All clients that there are make this mistake from now on; new ones do not."""
    for client in broker.clients:
        client.wrong = error, step


@pytest.mark.parametrize(("error", "step"), [(UNKNOWN, "marker"), (UNDELIVERED, "deliver")])
def test_a_client_that_was_misled_while_the_broker_was_away_is_replaced_after_two_failures(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]], error: KafkaError, step: str
) -> None:
    require_delivered(log.publish(next(rows), b"first"))
    be_wrong(broker, error, step)
    batch = next(rows)
    for _ in range(MOST_FAILURES):
        with pytest.raises(TransientError):
            require_delivered(log.publish(batch, b"second"))
    assert len(broker.clients) == len(LETTERS), "one failure may be the broker's"
    require_delivered(log.publish(batch, b"second"))
    assert broker.last_marker(MARKERS).value == b"second"
    assert len(broker.clients) == 2 * len(LETTERS)


def test_failures_that_are_not_in_a_row_replace_nothing(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    for _ in range(3 * MOST_FAILURES):
        be_wrong(broker, UNDELIVERED, "deliver")
        with pytest.raises(TransientError):
            require_delivered(log.publish(next(rows), b"m"))
        for client in broker.clients:
            client.wrong = None
        require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_a_topic_that_is_missing_is_no_fault_of_the_client(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    broker.missing = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for _ in range(3 * MOST_FAILURES):
        with pytest.raises(TopicUnavailableError):
            require_delivered(log.publish(next(rows), b"m"))
    broker.missing = None
    require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_an_owner_that_was_overtaken_does_not_fence_the_next_one_however_often_it_tries(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, OVERTAKEN, "commit")
    with pytest.raises(FencedError):
        require_delivered(log.publish(next(rows), b"m"))
    for _ in range(3 * MOST_FAILURES):
        with pytest.raises(UnknownOutcomeError):
            require_delivered(log.publish(next(rows), b"m"))
    assert len(broker.clients) == len(LETTERS)


def test_a_replaced_client_does_not_go_on_behind_an_owner_who_committed_in_between(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, UNDELIVERED, "deliver")
    for _ in range(MOST_FAILURES):
        with pytest.raises(TransientError):
            require_delivered(log.publish(next(rows), b"m"))
    broker.committed.append(Record(MARKERS, b"theirs", ((BATCH_NAME, b"other.1"),)))
    with pytest.raises(FencedError):
        require_delivered(log.publish(next(rows), b"m"))
    assert broker.last_marker(MARKERS).value == b"theirs"


def test_a_commit_that_is_never_answered_does_not_hold_the_shard_for_half_a_minute(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]]
) -> None:
    be_wrong(broker, UNSETTLED, "commit")
    with pytest.raises(UnknownOutcomeError):
        require_delivered(log.publish(next(rows), b"m"))
    assert Timeouts().commit <= broker.now < LONGEST_SECONDS
    log.take_over()
    require_delivered(log.publish(next(rows), b"after"))
    assert broker.last_marker(MARKERS).value == b"after"


def refuse(monkeypatch: pytest.MonkeyPatch, broker: MemoryTransactions, topic: str, key: bytes, value: bytes) -> None:
    """The broker refuses this record from now on, because it is too large."""
    record = SimpleNamespace(topic=lambda: topic, key=lambda: key, value=lambda: value)

    def flush(client: MemoryClient, _seconds: float) -> int:
        client.properties["on_delivery"](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), record)
        return 0

    monkeypatch.setattr(MemoryClient, "flush", flush)
    monkeypatch.setattr(TopicLimits, "learn", lambda *_: False)
    be_wrong(broker, UNDELIVERED, "deliver")


def test_a_refused_record_with_a_long_key_is_named_in_a_short_sentence(
    broker: MemoryTransactions, log: KafkaShardLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence goes into a marker, and four characters for a byte would make that too large."""
    large = OutboxRow(7, TOPIC, b"\xff" * 300_000, b"v", (), None, None)
    refuse(monkeypatch, broker, TOPIC, b"\xff" * 300_000, b"v")
    with pytest.raises(RejectedError, match=r"topic 'orders' with key b'.*MSG_SIZE_TOO_LARGE") as caught:
        require_delivered(log.publish([large], b"m"))
    assert caught.value.row_id == 7
    assert len(caught.value.message) < 500


def test_a_marker_that_its_topic_refuses_is_blamed_on_no_row(
    broker: MemoryTransactions, log: KafkaShardLog, rows: Iterator[list[OutboxRow]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, broker, MARKERS, b"0", b"m")
    with pytest.raises(TransientError) as caught:
        require_delivered(log.publish(next(rows), b"m"))
    assert "Raise max.message.bytes of 'inorder.g.marker' to 801000" in caught.value.hint
