"""A lane's promises, on a log in memory: order, room, rest, giving up, and that every errand is told once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from inorder.kafka.shard_log import Abandoned, Delivered, Delivery, Incomplete
from inorder.model.errors import InorderError, PublishError, RejectedError, TopicUnavailableError, TransientError
from inorder.model.message import Limits, Message, OutboxRow, encode
from inorder.outbox import request as request_module
from inorder.outbox import send_queue as send_queue_module
from inorder.outbox.request import Awaited, PublishRequest, Queued
from inorder.outbox.send_queue import QueueBounds, SendQueue
from tests.conftest import Eventually


@dataclass
class MemoryLog:
    """A producer that does as it is told: refuses some values, misses some topics, or takes its time."""

    sent: list[OutboxRow] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    doubtful: set[bytes] = field(default_factory=set)
    is_away: bool = False
    is_broken: bool = False
    is_closed: bool = False
    given_up: int = 0
    under_way: list[int] | None = None
    open: threading.Event = field(default_factory=threading.Event)

    def take_over(self) -> bytes | None:
        return None

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        assert marker == b""
        ids = [row.id for row in rows]
        assert self.under_way in (None, ids), "a batch under way was changed"
        self.open.wait()
        if self.is_broken:
            raise RuntimeError("broken")
        if self.is_away:
            self.under_way = ids
            return Incomplete(TransientError("The broker is away."), is_under_way=True)
        self.under_way = None
        self.batches.append(len(rows))
        for position, row in enumerate(rows):
            if failure := self._send(row, rows[:position]):
                return failure
        return Delivered()

    def _send(self, row: OutboxRow, before: Sequence[OutboxRow]) -> Incomplete | None:
        arrived = frozenset(one.id for one in before)
        if row.value in self.refused:
            return Incomplete(RejectedError("too large", row_id=row.id), arrived)
        if row.topic in self.missing:
            return Incomplete(TopicUnavailableError(row.topic, "no such topic"), arrived)
        if row.value in self.doubtful:
            self.doubtful.discard(row.value)
            return Incomplete(TransientError("no answer"), arrived, in_doubt=frozenset({row.id}))
        self.sent.append(row)
        return None

    def give_up(self) -> Abandoned:
        self.given_up += self.under_way is not None
        self.under_way = None
        return Abandoned()

    def close(self) -> None:
        self.is_closed = True

    @property
    def values(self) -> list[str]:
        return [(row.value or b"").decode() for row in self.sent]


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    found = MemoryLog()
    found.open.set()
    yield found
    found.open.set()


@pytest.fixture
def lane(log: MemoryLog) -> Iterator[SendQueue]:
    found = SendQueue(log)
    yield found
    found.close()


@dataclass
class Told:
    """What the callback of queued messages received."""

    heard: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, message: Message, error: InorderError | None) -> None:
        self.heard.append((str(message.value), type(error).__name__ if error else "arrived"))


def posted(
    *values: object, topic: str = "t", told: Callable[[Message, InorderError | None], None] | None = None
) -> list[Queued]:
    messages = [Message(topic, key="k", value=str(value)) for value in values]
    return [Queued(message, encode(message, Limits()), told) for message in messages]


def call_of(*values: object, topic: str = "t") -> tuple[PublishRequest, list[Awaited]]:
    messages = [Message(topic, key="k", value=str(value)) for value in values]
    call = PublishRequest(messages, [encode(message, Limits()) for message in messages])
    return call, [Awaited(call, position) for position in range(len(messages))]


def failure_of(call: PublishRequest, seconds: float = 10) -> PublishError:
    with pytest.raises(PublishError) as caught:
        call.wait(range(len(call.messages)), seconds)
    return caught.value


def test_messages_are_sent_in_the_order_in_which_they_were_put(lane: SendQueue, log: MemoryLog) -> None:
    for number in range(100):
        assert lane.put(posted(number)) == 1
    assert lane.flush(10) == 0
    assert log.values == [str(number) for number in range(100)]


def test_what_comes_while_a_batch_is_sent_goes_together_in_the_next(
    lane: SendQueue, log: MemoryLog, eventually: Eventually
) -> None:
    log.open.clear()
    lane.put(posted("first"))
    eventually(lambda: lane._batch)
    for number in range(20):
        lane.put(posted(number))
    log.open.set()
    assert lane.flush(10) == 0
    assert log.batches == [1, 20]


def test_a_batch_has_its_bounds(lane: SendQueue, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue_module, "BATCH_MESSAGES", 10)
    monkeypatch.setattr(send_queue_module, "BATCH_BYTES", 1000)
    lane.put([*posted(*range(25)), *posted("x" * 1000, "y" * 1000)])
    assert lane.flush(10) == 0
    assert log.batches[:2] == [10, 10]
    assert len(log.batches) > 3
    assert len(log.sent) == 27


def test_a_refused_errand_fails_its_call_and_nothing_behind_it_is_sent(lane: SendQueue, log: MemoryLog) -> None:
    log.refused = {b"2"}
    call, errands = call_of(1, 2, 3)
    lane.put(errands)
    error = failure_of(call)
    assert [message.value for message in error.unsent] == ["2", "3"]
    assert lane.flush(10) == 0
    assert log.values == ["1"]


def test_a_refused_errand_of_one_call_lets_others_go_on(
    lane: SendQueue, log: MemoryLog, eventually: Eventually
) -> None:
    log.refused = {b"bad"}
    log.open.clear()
    lane.put(posted("hold"))
    eventually(lambda: lane._batch)
    bad, bad_errands = call_of("bad", "after bad")
    good, good_errands = call_of("good")
    lane.put([*bad_errands, *good_errands])
    log.open.set()
    good.wait([0], 10)
    failure_of(bad)
    assert log.values == ["hold", "good"]


def test_a_refused_posted_errand_is_told_and_the_next_go_on(lane: SendQueue, log: MemoryLog) -> None:
    log.refused = {b"2"}
    told = Told()
    lane.put(posted(1, 2, 3, told=told))
    assert lane.flush(10) == 0
    assert log.values == ["1", "3"]
    assert told.heard == [("1", "arrived"), ("2", "PublishRefusedError"), ("3", "arrived")]


def test_a_posted_errand_waits_for_its_topic_and_others_do_not(
    lane: SendQueue, log: MemoryLog, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue_module, "PAUSE_SECONDS", 0.05)
    log.missing = {"away"}
    lane.put([*posted(1, 2, topic="away"), *posted("here")])
    eventually(lambda: log.values == ["here"])
    lane.put(posted(3, topic="away"))
    lane.put(posted("here too"))
    eventually(lambda: log.values == ["here", "here too"])
    assert lane.flush(0) == 3
    log.missing = set()
    assert lane.flush(10) == 0
    assert log.values == ["here", "here too", "1", "2", "3"]


def test_a_call_waits_a_moment_for_its_topic_and_then_fails(
    lane: SendQueue, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue_module, "PAUSE_SECONDS", 0.01)
    log.missing = {"away"}
    monkeypatch.setattr(request_module, "TOPIC_SECONDS", 0.1)
    call, errands = call_of(1, topic="away")
    lane.put(errands)
    assert "no such topic" in failure_of(call).message
    assert lane.flush(10) == 0


def test_a_call_whose_time_is_over_while_its_topic_rests_is_settled(
    lane: SendQueue, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue_module, "PAUSE_SECONDS", 0.3)
    log.missing = {"away"}
    call, errands = call_of(1, topic="away")
    lane.put(errands)
    error = failure_of(call, 0.1)
    assert error.in_doubt == ()
    assert lane.flush(10) == 0


def test_a_call_whose_time_is_over_takes_its_errands_back_and_nobody_elses(
    lane: SendQueue, log: MemoryLog, eventually: Eventually
) -> None:
    log.is_away = True
    impatient, theirs = call_of("impatient")
    patient, ours = call_of("patient")
    lane.put([*theirs, *ours])
    eventually(lambda: log.under_way)
    assert "The broker is away." in failure_of(impatient, 0.1).message
    log.is_away = False
    patient.wait([0], 10)
    assert log.values == ["patient"]
    assert log.given_up >= 1


def test_an_errand_in_doubt_fails_its_call_and_is_not_sent_again(lane: SendQueue, log: MemoryLog) -> None:
    log.doubtful = {b"2"}
    call, errands = call_of(1, 2, 3)
    lane.put(errands)
    error = failure_of(call)
    assert [message.value for message in error.in_doubt] == ["2"]
    assert [message.value for message in error.unsent] == ["2", "3"]
    assert log.values == ["1"]


def test_a_posted_errand_in_doubt_is_sent_again(lane: SendQueue, log: MemoryLog) -> None:
    log.doubtful = {b"2"}
    lane.put(posted(1, 2, 3))
    assert lane.flush(10) == 0
    assert log.values == ["1", "2", "3"]


@pytest.mark.parametrize("bounds", [QueueBounds(3, 10**9), QueueBounds(10**9, 9)])
def test_a_full_lane_blocks_until_there_is_room(log: MemoryLog, bounds: QueueBounds, eventually: Eventually) -> None:
    log.open.clear()
    lane = SendQueue(log, bounds)
    errands = posted("aa", "bb", "cc", "dd", "ee")
    putting = threading.Thread(target=lane.put, args=(errands,))
    putting.start()
    eventually(lambda: lane.flush(0) == 3)
    putting.join(0.1)
    assert putting.is_alive()
    log.open.set()
    putting.join(10)
    assert lane.flush(10) == 0
    assert log.values == ["aa", "bb", "cc", "dd", "ee"]
    lane.close()


def test_an_errand_larger_than_all_room_goes_alone(log: MemoryLog) -> None:
    lane = SendQueue(log, QueueBounds(10, 1))
    lane.put(posted("large", "larger"))
    assert lane.flush(10) == 0
    lane.close()


def test_closing_returns_what_is_left_in_order_and_tells_each(
    log: MemoryLog, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue_module, "PAUSE_SECONDS", 60)
    lane, told = SendQueue(log), Told()
    log.missing = {"away"}
    lane.put(posted("resting", topic="away", told=told))
    eventually(lambda: lane._paused)
    log.is_away = True
    lane.put(posted("in hand", told=told))
    eventually(lambda: log.under_way)
    call, errands = call_of("queued")
    lane.put(errands)
    left = lane.close()
    assert [errand.record.value for errand in left] == [b"resting", b"in hand", b"queued"]
    assert told.heard == [("resting", "PublishUnfinishedError"), ("in hand", "PublishUnfinishedError")]
    assert "closed" in failure_of(call).message
    assert log.is_closed
    assert lane.flush(0) == 0


def test_a_closed_lane_takes_nothing(lane: SendQueue, log: MemoryLog) -> None:
    lane.put(posted(1))
    assert lane.flush(10) == 0
    assert lane.close() == []
    assert lane.put(posted(2)) == 0
    assert log.values == ["1"]


def test_a_lane_that_was_never_used_has_no_thread() -> None:
    before = threading.active_count()
    lane = SendQueue(MemoryLog())
    assert threading.active_count() == before
    assert lane.close() == []


def test_whoever_waits_hears_of_a_thread_that_broke(log: MemoryLog, caplog: pytest.LogCaptureFixture) -> None:
    log.is_broken = True
    lane = SendQueue(log)
    call, errands = call_of(1)
    lane.put(errands)
    assert "RuntimeError('broken')" in failure_of(call).message
    assert "publisher.thread_ended" in caplog.text
    assert lane.put(posted(2)) == 0


def test_a_callback_may_publish_into_a_full_lane(log: MemoryLog) -> None:
    lane = SendQueue(log, QueueBounds(1, 10**9))

    def again(message: Message, error: InorderError | None) -> None:
        if message.value == "1":
            lane.put(posted("from the callback"))
            assert lane.flush(10) > 0, "flush must not wait for its own thread"

    lane.put(posted(1, told=again))
    assert lane.flush(10) == 0
    assert log.values == ["1", "from the callback"]
    lane.close()
