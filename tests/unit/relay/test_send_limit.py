"""A batch that does not get through in time is sent in smaller parts, which grow again once they get through."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from inorder.kafka.shard_log import Delivery, Incomplete
from inorder.model.errors import TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.loop import LEAST_BYTES, SendLimit
from tests.conftest import Eventually
from tests.fakes.log import MemoryShardLog, MemoryUnfencedLog
from tests.unit.relay.running import World, running

MB = 1_000_000


def row(id: int, size: int) -> OutboxRow:
    return OutboxRow(id, "t", None, bytes(size), (), None, None)


def test_at_first_nothing_is_cut() -> None:
    rows = [row(id, MB) for id in range(100)]
    assert SendLimit().cut(rows) == (rows, [])


def test_a_batch_that_failed_is_sent_in_halves_until_one_gets_through() -> None:
    rows, limit, sizes = [row(id, 300_000) for id in range(500)], SendLimit(), list[int]()
    for _ in range(4):
        part, _ = limit.cut(rows)
        sizes.append(len(part))
        limit = limit.failed(part)
    assert sizes == [500, 250, 125, 62]


def test_it_grows_again_with_each_part_that_fills_it_and_is_given_up_in_the_end() -> None:
    limit = SendLimit(4 * LEAST_BYTES, at_first=MB)
    few, full = [row(1, 10)], [row(1, 4 * LEAST_BYTES)]
    assert limit.succeeded(few) == limit, "a small part proves nothing"
    assert limit.succeeded(full) == SendLimit(5 * LEAST_BYTES, at_first=MB)
    assert SendLimit(MB, at_first=MB).succeeded([row(1, MB)]) == SendLimit(None), "as large as what failed at first"


def test_what_failed_although_it_was_small_is_not_cut_further() -> None:
    """Then its size is not the reason, and an outage must not lead to a transaction for every row."""
    limit = SendLimit()
    for _ in range(30):
        limit = limit.failed([row(1, 100), row(2, 100)])
    assert limit.cut([row(id, 100) for id in range(100)])[1] == []


def test_a_row_that_is_larger_than_the_limit_goes_alone() -> None:
    rows = [row(1, MB), row(2, MB)]
    assert SendLimit(LEAST_BYTES).cut(rows) == (rows[:1], rows[1:])


@given(some.lists(some.integers(0, 100_000)), some.integers(LEAST_BYTES, 200_000))
def test_a_cut_loses_nothing_keeps_the_order_and_the_limit(sizes: list[int], most: int) -> None:
    rows = [row(id, size) for id, size in enumerate(sizes)]
    part, rest = SendLimit(most).cut(rows)
    assert [*part, *rest] == rows
    assert len(part) <= 1 or sum(len(each.value or b"") for each in part) <= most
    assert part or not rows


class Slow(MemoryShardLog):
    """A broker that takes no more than so many bytes before its time is over."""

    sent: list[int]
    error: type[TransientError] = TransientError

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        size = sum(len(each.value or b"") for each in rows)
        self.sent.append(size)
        if size <= 100_000:
            return super().publish(rows, marker)
        if self.error is UnknownOutcomeError:
            raise UnknownOutcomeError("No answer, and not committed.")
        return Incomplete(TransientError("The transaction timed out."))


@pytest.mark.parametrize("error", [TransientError, UnknownOutcomeError])
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_batch_too_large_for_its_time_is_halved_until_it_commits(
    strategy: str, error: type[TransientError], eventually: Eventually
) -> None:
    world = World()
    log = Slow(world.broker)
    log.sent, log.error = [], error
    world.commit(*(("t", b"k", b"%04d" % number * 5000) for number in range(40)))
    with running(world, strategy=strategy, log=log):
        eventually(lambda: world.outbox.count() == 0)
        first = len(log.sent)
        world.commit(*(("t", b"k", b"%04d" % number * 5000) for number in range(40, 60)))
        eventually(lambda: world.outbox.count() == 0)
    assert [int((value or b"")[:4]) for value in world.sent()] == list(range(60))
    assert sum(size > 100_000 for size in log.sent) < first


def test_a_batch_that_is_still_under_way_is_not_cut(eventually: Eventually) -> None:
    """The log waits for the same rows; with others it would have to give them up."""
    world, asked, goes = World(), list[int](), threading.Event()

    class UnderWay(MemoryUnfencedLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            asked.append(len(rows))
            if not goes.is_set():
                return Incomplete(TransientError("Not acknowledged yet."), is_under_way=True)
            return super().publish(rows, marker)

    world.commit(*(("t", b"k", bytes(50_000)) for _ in range(20)))
    with running(world, log=UnderWay(world.broker)):
        eventually(lambda: len(asked) > 5)
        goes.set()
        eventually(lambda: world.outbox.count() == 0)
    assert set(asked) == {20}
