"""What a topic worker does with a topic: the scenarios of Deimos, and those where Deimos goes wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from inorder.kafka.shard_log import Delivery, Incomplete
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    TopicPausedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
    UnreachableError,
)
from inorder.model.message import OutboxRow
from inorder.relay.stores.ports import LAST_ID, Page
from inorder.relay.topic_lock import TopicRelay, TopicWorker
from tests.conftest import Eventually
from tests.fakes.log import MemoryUnfencedLog, failed
from tests.fakes.topics import MemoryTopicStore, MemoryTopicTables
from tests.unit.relay.topics import Post, working

OTHER = uuid4()


class Counting(MemoryTopicStore):
    """Counts calls, and fails where the test says so."""

    def __init__(self, tables: MemoryTopicTables, *, stale_seconds: float = 60.0) -> None:
        super().__init__(tables, stale_seconds=stale_seconds)
        self.calls: list[str] = []
        self.failing: dict[str, list[Exception]] = {}

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        self._called("read")
        return super().read(topic, limit, max_bytes)

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        self._called("stamp")
        return super().stamp(topic, worker, session, ids)

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        self._called("delete")
        return super().delete(topic, worker, session, ids, group_size)

    def unlock(self, topic: str, worker: UUID) -> None:
        self._called("unlock")
        super().unlock(topic, worker)

    def fail(self, topic: str, worker: UUID) -> None:
        self._called("fail")
        super().fail(topic, worker)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failing.get(name):
            raise self.failing[name].pop(0)


class Failing(MemoryUnfencedLog):
    """Fails so many times before it works."""

    errors: Sequence[Exception] = ()

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        if self.errors:
            error, *self.errors = self.errors
            return failed(error)
        return super().publish(rows, marker)


def messages(count: int, topic: str = "t") -> list[tuple[str, bytes, bytes]]:
    return [(topic, b"k%d" % (number % 3), b"%d" % number) for number in range(count)]


def test_a_message_is_sent_and_gone() -> None:
    post = Post()
    post.write(("t", b"k", b"v"))
    worker = post.round()
    assert (post.sent(), post.left()) == ([b"v"], [])
    assert (worker.progress.published, worker.progress.processed) == (1, 1)
    row = post.tables.locks["t"]
    assert (row.locked_by, row.error, row.retries) == (None, False, 0)
    assert row.last_processed_at is not None


def test_tombstones_and_messages_without_a_key_are_sent_as_they_are() -> None:
    post = Post()
    post.write(("t", b"k", None), ("t", None, b"v"), ("t", None, None))
    post.round()
    assert [(row.key, row.value) for row in post.broker.records] == [(b"k", None), (None, b"v"), (None, None)]


def test_a_topic_that_another_has_locked_is_left_alone() -> None:
    post = Post()
    post.write(*messages(3))
    post.store().lock("t", OTHER)
    post.round()
    assert (post.sent(), len(post.left())) == ([], 3)
    assert post.tables.locks["t"].locked_by == str(OTHER)


def test_full_batches_follow_each_other_until_a_short_one() -> None:
    post = Post()
    post.write(*messages(5))
    store = Counting(post.tables)
    post.round(store=store, batch_size=2)
    batch = ["read", "stamp", "delete"]
    assert store.calls == [*batch, *batch, *batch, "unlock"]
    assert post.sent() == [b"0", b"1", b"2", b"3", b"4"]
    assert [len(event.messages) for event in post.events] == [2, 2, 1]
    assert all(event.error is None for event in post.events)


def test_four_topics_of_four_messages_in_batches_of_two() -> None:
    post = Post()
    topics = ["a", "b", "c", "d"]
    for topic in topics:
        post.write(*messages(4, topic))
    post.round(batch_size=2)
    assert post.left() == []
    for topic in topics:
        assert post.sent(topic) == [b"0", b"1", b"2", b"3"]


def test_an_error_in_a_read_lets_the_topic_rest_and_sends_nothing() -> None:
    post = Post()
    post.write(*messages(3))
    store = Counting(post.tables)
    store.failing["read"] = [UnreachableError("gone")]
    post.round(store=store)
    assert post.sent() == []
    row = post.tables.locks["t"]
    assert (row.locked_by, row.error, row.retries) == (None, True, 1)
    assert row.locked_at is not None


@pytest.mark.parametrize("error", [TopicUnavailableError("t", "deleted"), ConfigurationError("wrong")])
def test_an_error_of_the_send_is_told_with_its_messages_and_keeps_them(error: Exception) -> None:
    post = Post()
    post.write(*messages(3))
    post.write(("other", b"k", b"v"))
    log = Failing(post.broker)
    log.errors = [error]
    refused = isinstance(error, ConfigurationError)
    worker = post.worker(log_of=lambda topic: log if topic == "t" else MemoryUnfencedLog(post.broker))
    if refused:
        with pytest.raises(ConfigurationError):
            post.round(worker)
    else:
        post.round(worker)
        assert post.sent("other") == [b"v"], "all other topics go on"
    failed = next(event for event in post.events if event.error is not None)
    assert (failed.topic, failed.error, len(failed.messages)) == ("t", error, 3)
    assert post.left()[:3] == [b"0", b"1", b"2"]
    assert post.tables.locks["t"].error


def test_a_resting_topic_recovers_by_itself() -> None:
    post = Post()
    now = [1000.0]
    post.tables.clock = lambda: now[0]
    post.write(*messages(2))
    log = Failing(post.broker)
    log.errors = [TopicUnavailableError("t", "deleted")]
    post.round(log=log)
    post.round(log=log)
    assert post.sent() == []
    now[0] += 61
    post.round(log=log)
    assert post.sent() == [b"0", b"1"]
    assert post.tables.locks["t"].retries == 0


def test_a_broker_that_is_late_is_waited_for_and_nothing_is_sent_again() -> None:
    post = Post()
    post.write(*messages(2))
    log = Failing(post.broker)
    log.errors = [TransientError("Not acknowledged yet.")] * 5
    post.round(log=log)
    assert post.sent() == [b"0", b"1"]
    assert not post.tables.locks["t"].error


def test_a_topic_that_is_being_switched_is_waited_for_under_the_lock() -> None:
    post = Post()
    post.write(*messages(2))
    log = Failing(post.broker)
    log.errors = [TopicSwitchingError("t", "is being switched")] * 5
    post.round(log=log)
    assert post.sent() == [b"0", b"1"]
    assert not post.tables.locks["t"].error


def test_a_paused_topic_does_not_rest_and_is_sent_when_it_is_resumed() -> None:
    post = Post()
    post.write(*messages(2))
    log = Failing(post.broker)
    log.errors = [TopicPausedError("t", "is paused")]
    post.round(log=log)
    assert post.sent() == []
    assert not post.tables.locks["t"].error
    post.round(log=log)
    assert post.sent() == [b"0", b"1"]


def test_a_broker_that_stays_away_lets_the_topic_rest() -> None:
    post = Post()
    post.write(*messages(2))
    log = Failing(post.broker)
    log.errors = [TransientError("Not acknowledged yet.")] * 5
    ticks = iter(range(0, 10_000, 7))
    post.round(log=log, clock=lambda: float(next(ticks)), lock_seconds=10_000)
    assert (post.sent(), len(post.left())) == ([], 2)
    assert post.tables.locks["t"].error


def test_a_failed_delete_is_tried_again_without_sending_again() -> None:
    post = Post()
    post.write(*messages(3))
    store = Counting(post.tables)
    store.failing["delete"] = [TransientError("Lock wait timeout."), UnreachableError("Lost connection.")]
    post.round(store=store)
    assert store.calls == ["read", "stamp", "delete", "delete", "delete", "unlock"]
    assert (post.sent(), post.left()) == ([b"0", b"1", b"2"], [])


def test_another_error_of_a_delete_is_raised() -> None:
    post = Post()
    post.write(*messages(1))
    store = Counting(post.tables)
    store.failing["delete"] = [RuntimeError("a mistake")]
    with pytest.raises(RuntimeError):
        post.round(store=store)
    assert post.tables.locks["t"].error


def test_a_message_that_somebody_took_away_between_read_and_stamp_is_not_sent() -> None:
    post = Post()
    first, _ = post.write(*messages(2))

    class Late(Counting):
        def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
            post.tables.rows.pop(first, None)
            return super().stamp(topic, worker, session, ids)

    post.round(store=Late(post.tables), batch_size=2)
    assert post.sent() == [b"1"]


def test_messages_of_named_topics_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    post = Post()
    post.write(("t", b"k", b'{"a": 1}'), ("t", None, b"\xff"), ("u", b"k", b"quiet"))
    with caplog.at_level(logging.INFO, logger="inorder.relay"):
        post.round(log_topics=frozenset({"t"}))
    logged = [vars(record) for record in caplog.records if record.message == "relay.message"]
    assert [(each["topic"], each["key"], each["value"]) for each in logged] == [
        ("t", "k", '{"a": 1}'),
        ("t", None, "\\xff"),
    ]


class Paused(MemoryUnfencedLog):
    """A worker that sleeps for 70 s at a chosen moment, while another takes its lock."""

    def __init__(self, post: Post, now: list[float], when: str) -> None:
        super().__init__(post.broker)
        self.post, self.now, self.when = post, now, when
        self.sends = 0

    def pause(self) -> None:
        self.now[0] += 70
        assert self.post.store().lock("t", OTHER)

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        self.sends += 1
        if self.when == "while sending":
            self.pause()
            return Incomplete(TransientError("Not acknowledged yet."))
        return super().publish(rows, marker)


def stolen(when: str) -> tuple[Post, Paused]:
    """Two full batches, and a pause of 70 s in the first one."""
    post, now = Post(), [1000.0]
    post.tables.clock = lambda: now[0]
    post.write(*messages(4))
    log = Paused(post, now, when)

    class Store(Counting):
        def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
            stamped = super().stamp(topic, worker, session, ids)
            if when == "before the send" and not log.sends:
                log.pause()
            return stamped

        def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
            if when == "before the delete":
                log.pause()
            return super().delete(topic, worker, session, ids, group_size)

    post.round(store=Store(post.tables), log=log, batch_size=2, clock=lambda: now[0])
    return post, log


@pytest.mark.parametrize(("when", "sends"), [("before the send", 0), ("while sending", 1), ("before the delete", 1)])
def test_a_worker_whose_lock_was_stolen_notices_before_it_sends_or_deletes(when: str, sends: int) -> None:
    post, log = stolen(when)
    assert log.sends == sends
    assert len(post.left()) == 4, "nothing is deleted without the lock"
    assert isinstance(post.events[-1].error, FencedError)
    row = post.tables.locks["t"]
    assert (row.locked_by, row.error, row.retries) == (str(OTHER), False, 0), "the thief's lock is not touched"


def test_a_slow_batch_keeps_its_lock(eventually: Eventually) -> None:
    post = Post()
    post.write(*messages(1))
    held, done = threading.Event(), threading.Event()

    class Slow(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            held.set()
            done.wait(10)
            return super().publish(rows, marker)

    with working(post.worker(log=Slow(post.broker), lock_seconds=0.2), stop=post.stop):
        held.wait(10)
        first = post.tables.locks["t"].locked_at
        thief = MemoryTopicStore(post.tables, stale_seconds=0.2)
        for _ in range(5):
            before = post.tables.locks["t"].locked_at
            eventually(lambda before=before: post.tables.locks["t"].locked_at != before)  # type: ignore[misc]  # bound
            assert not thief.lock("t", OTHER)
        done.set()
        eventually(lambda: not post.left())
    assert first != post.tables.locks["t"].locked_at


def test_a_worker_that_is_told_to_stop_finishes_its_batch_and_unlocks() -> None:
    post = Post()
    post.write(*messages(6))

    class Stopping(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            post.stop.set()
            return super().publish(rows, marker)

    post.round(log=Stopping(post.broker), batch_size=2)
    assert (post.sent(), len(post.left())) == ([b"0", b"1"], 4)
    assert post.tables.locks["t"].locked_by is None
    assert not post.tables.locks["t"].error


def test_a_batch_in_trouble_is_dropped_at_the_stop() -> None:
    post = Post()
    post.write(*messages(2))

    class Stopping(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
            post.stop.set()
            return Incomplete(TransientError("Not acknowledged yet."))

    post.round(log=Stopping(post.broker))
    assert len(post.left()) == 2
    assert post.tables.locks["t"].locked_by is None


def test_new_messages_wake_a_resting_worker(eventually: Eventually) -> None:
    post = Post()
    with working(*(post.worker() for _ in range(3)), stop=post.stop):
        for number in range(20):
            post.write(("t", b"k", b"%d" % number))
            eventually(lambda: not post.left())
    assert post.sent() == [b"%d" % number for number in range(20)]


def test_a_worker_that_dies_is_replaced(eventually: Eventually) -> None:
    post = Post()
    made: list[Counting] = []

    def new_worker() -> TopicWorker:
        made.append(Counting(post.tables, stale_seconds=0.01))
        if len(made) == 1:
            made[0].failing["read"] = [RuntimeError("a mistake")]
        return post.worker(store=made[-1])

    relay = TopicRelay(new_worker, workers=1, stop=post.stop, restart_seconds=0.01)
    post.write(*messages(2))
    thread = threading.Thread(target=relay.run)
    thread.start()
    eventually(lambda: relay.progress.processed == 2)
    post.stop.set()
    thread.join()
    assert len(made) == 2
    assert (relay.progress.published, relay.in_flight(), relay.progress.leader_id) == (2, [], None)


def test_what_only_a_person_can_mend_ends_all_workers() -> None:
    post = Post()
    post.write(*messages(2))

    def new_worker() -> TopicWorker:
        store = Counting(post.tables)
        store.failing["read"] = [ConfigurationError("no such column")]
        return post.worker(store=store)

    with pytest.raises(ConfigurationError, match="no such column"):
        TopicRelay(new_worker, workers=3, stop=post.stop).run()
    assert post.stop.is_set()


def test_a_relay_that_may_not_work_makes_no_worker() -> None:
    post = Post()

    def prepare() -> None:
        raise ConfigurationError("no such table")

    with pytest.raises(ConfigurationError, match="no such table"):
        TopicRelay(post.worker, workers=3, stop=post.stop, prepare=prepare).run()
