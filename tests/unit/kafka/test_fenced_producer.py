"""A request that arrives late changes nothing: an epoch is not used again unless each request was sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from inorder.kafka.fenced_producer import FLUSH_SECONDS, ClientBackoff, FencedProducer, Timeouts
from inorder.kafka.shard_log import Delivered
from inorder.model.errors import FencedError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.stores.kafka_log import KafkaShardLog
from tests.fakes.transactions import JITTERED, MemoryTransactions, install
from tests.selection import examples

ID = "inorder.test"
TOPIC = "orders"
GROUP = "copies"
UNANSWERED = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False)
UNDELIVERED = KafkaError(KafkaError._INCONSISTENT, "1 message failed", False, False, True)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryTransactions:
    made = MemoryTransactions()
    install(made, monkeypatch)
    return made


def send(producer: FencedProducer, value: bytes) -> None:
    producer.begin()
    producer.client.produce(TOPIC, value)


def wait_for_offsets(producer: FencedProducer) -> None:
    producer.add_offsets([TopicPartition(TOPIC, 0, 7)], GROUP)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ClientBackoff(500, 1_000)),
        ({"retry.backoff.ms": 100, "retry.backoff.max.ms": 100}, ClientBackoff(500, 1_000)),
        ({"retry.backoff.ms": "2000"}, ClientBackoff(2_000, 2_000)),
        ({"retry.backoff.ms": 600, "retry.backoff.max.ms": "5000"}, ClientBackoff(600, 5_000)),
        ({"retry.backoff.ms": "soon"}, ClientBackoff(500, 1_000)),
    ],
)
def test_a_retry_waits_as_long_as_the_user_wants_and_never_too_short(
    broker: MemoryTransactions, properties: Mapping[str, object], expected: ClientBackoff
) -> None:
    FencedProducer(properties, ID)
    effective = broker.clients[0].properties
    assert ClientBackoff(effective["retry.backoff.ms"], effective["retry.backoff.max.ms"]) == expected
    assert expected.end_seconds < JITTERED * expected.first_ms / 1000
    assert expected.offsets_seconds < 0.5, "that long the client waits before it repeats a TxnOffsetCommit"


@pytest.mark.parametrize(
    ("backoff_ms", "seconds", "is_spent"),
    [(500, 0.374, False), (500, 0.375, True), (500, 20.0, True), (2_000, 1.4, False), (2_000, 1.5, True)],
)
@pytest.mark.parametrize("how", ["commit", "abort"])
def test_an_epoch_is_used_again_only_if_the_end_of_its_transaction_was_answered_before_a_retry(
    broker: MemoryTransactions, how: str, backoff_ms: int, seconds: float, *, is_spent: bool
) -> None:
    producer = FencedProducer({"retry.backoff.ms": backoff_ms}, ID)
    send(producer, b"1")
    broker.trip_seconds = seconds
    getattr(producer, how)()
    assert producer.is_spent is is_spent
    if is_spent:
        with pytest.raises(UnknownOutcomeError, match="take it over again"):
            producer.begin()
    else:
        producer.begin()


def test_offsets_that_are_answered_late_end_the_epoch_with_their_transaction(broker: MemoryTransactions) -> None:
    producer = FencedProducer({"retry.backoff.ms": 5_000}, ID)
    send(producer, b"1")
    broker.trip_seconds = 0.45  # much less than the back-off, but offsets are repeated after half a second
    wait_for_offsets(producer)
    broker.trip_seconds = 0.001
    producer.commit()
    assert broker.values(TOPIC) == [b"1"]
    assert producer.is_spent


@pytest.mark.parametrize("step", ["commit", "abort", "offsets"])
def test_a_call_that_fails_ends_the_epoch(broker: MemoryTransactions, step: str) -> None:
    producer = FencedProducer({}, ID)
    send(producer, b"1")
    broker.clients[0].wrong = UNANSWERED, step
    calls: dict[str, Callable[[], None]] = {
        "commit": producer.commit,
        "abort": producer.abort,
        "offsets": lambda: wait_for_offsets(producer),
    }
    with pytest.raises(KafkaException):
        calls[step]()
    assert producer.is_spent


@pytest.mark.parametrize(("error", "step"), [(UNDELIVERED, "deliver"), (UNANSWERED, "flush")])
def test_a_commit_that_sent_nothing_leaves_the_epoch_usable(
    broker: MemoryTransactions, error: KafkaError, step: str
) -> None:
    producer = FencedProducer({}, ID)
    send(producer, b"1")
    broker.clients[0].wrong = error, step
    with pytest.raises(KafkaException) as raised:
        producer.commit()
    assert raised.value.args[0].txn_requires_abort()
    broker.clients[0].wrong = None
    producer.abort()
    assert not producer.is_spent
    send(producer, b"2")
    producer.commit()
    assert broker.values(TOPIC) == [b"2"]


def test_the_caller_is_called_while_records_are_not_acknowledged(broker: MemoryTransactions) -> None:
    producer = FencedProducer({}, ID)
    send(producer, b"1")
    broker.clients[0].wrong = UNANSWERED, "flush"
    looks: list[float] = []

    def look() -> None:
        looks.append(broker.now)
        if len(looks) == 3:
            broker.clients[0].wrong = None

    producer.commit(look)
    step = Timeouts().look
    assert [round(each, 1) for each in looks] == [step, 2 * step, 3 * step]
    assert ClientBackoff.of({}).end_seconds > FLUSH_SECONDS
    assert not producer.is_spent, "the wait for acknowledgements does not count"


@pytest.mark.parametrize(
    ("how", "obeys", "early", "found"),
    [
        ("commit", True, [b"one"], [b"one", b"two-a", b"two-b"]),
        ("commit", False, [b"one", b"two-a"], [b"one", b"two-a", b"two-b"]),
        ("abort", True, [], [b"two-a", b"two-b"]),
        ("abort", False, [], [b"two-b"]),
    ],
)
def test_a_late_end_does_not_end_the_next_transaction(
    broker: MemoryTransactions, how: str, early: list[bytes], found: list[bytes], *, obeys: bool
) -> None:
    """Without the rule it does, here as on a real broker: the fake is no kinder."""
    producer = FencedProducer({}, ID)
    send(producer, b"one")
    broker.holds = 1
    getattr(producer, how)()
    assert producer.is_spent
    producer.is_spent = False
    if obeys:
        producer = FencedProducer({}, ID)
    send(producer, b"two-a")
    broker.deliver_late()
    assert broker.values(TOPIC) == early
    producer.client.produce("payments", b"two-b")
    producer.commit()
    assert [record.value for record in broker.committed] == found


# The same for the relay's log, with everything that can happen between two batches.


class Owner:
    """A relay that publishes the numbers from its marker on."""

    def __init__(self) -> None:
        self._log = KafkaShardLog({}, group="g")
        self._owns = False
        self._next = 0

    def step(self) -> None:
        """Takes over, or publishes the next two numbers."""
        if not self._owns:
            self._next = int(self._log.take_over() or b"0") + 1
            self._owns = True
            return
        rows = [OutboxRow(id, TOPIC, b"k", str(id).encode(), (), None, None) for id in (self._next, self._next + 1)]
        try:
            if isinstance(self._log.publish(rows, str(self._next + 1).encode()), Delivered):
                self._next += 2
        except (FencedError, UnknownOutcomeError):
            self._owns = False


CALM = st.sampled_from(["first", "second", "late", "dead take-over", "unanswered", "answered"])
LATE = st.tuples(st.just("hold"), st.just("first"), st.integers(1, 8), st.just("first"), st.just("first"))
"""A request is held back, and arrives while or after the same owner sends one of its next batches."""


@examples(400)
@given(st.lists(st.one_of(CALM.map(lambda each: (each,)), LATE), max_size=20))
def test_whatever_is_late_and_whoever_takes_over_each_number_is_committed_once_in_order(
    actions: list[tuple[str | int, ...]],
) -> None:
    broker = MemoryTransactions()
    with pytest.MonkeyPatch.context() as patch:
        install(broker, patch)
        owners = {"first": Owner(), "second": Owner()}
        for action in chain.from_iterable(actions):
            act(action, broker, owners)
        found = [int(value) for value in broker.values(TOPIC)]
    assert found == list(range(1, len(found) + 1))


def act(action: str | int, broker: MemoryTransactions, owners: Mapping[str, Owner]) -> None:
    match action:
        case "first" | "second":
            owners[action].step()
        case "hold":
            broker.holds += 1
        case "late":
            broker.deliver_late()
        case int():
            broker.late_in = action
        case "dead take-over":
            FencedProducer({}, "inorder.g.0.a")
        case "unanswered" | "answered":
            for client in broker.clients:
                client.wrong = (UNANSWERED, "commit") if action == "unanswered" else None
