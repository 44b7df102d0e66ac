"""Rows are claimed by a mark of one term, never returned twice, and free again when the term is over."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import UUID

from inorder.kafka.shard_log import Delivery, Incomplete
from inorder.model.errors import RejectedError, TransientError
from inorder.model.message import OutboxRow
from inorder.relay.mark_purge import MarkPurgeClaims, MarkPurgeStrategy
from inorder.relay.marker import Marker, prove
from inorder.relay.stores.ports import LAST_ID, Page
from tests.conftest import Eventually
from tests.fakes.log import MemoryShardLog
from tests.fakes.outbox import MemoryOutbox
from tests.unit.relay.running import World, running

A, B = UUID(int=1), UUID(int=2)


def nothing() -> frozenset[int]:
    return frozenset()


def filled(count: int) -> MemoryOutbox:
    outbox = MemoryOutbox()
    for number in range(count):
        outbox.insert("t", "t", b"k", b"%d" % number)
    outbox.end("t")
    return outbox


def test_a_mark_is_returned_once_and_in_id_order() -> None:
    claims = MarkPurgeClaims(filled(5), A, 3)
    first, second = claims.claim(nothing), claims.claim(nothing)
    assert (first.ids, first.is_full) == ([1, 2, 3], True)
    assert (second.ids, second.is_full) == ([4, 5], False)


def test_another_leader_claims_what_this_one_marked() -> None:
    outbox = filled(3)
    MarkPurgeClaims(outbox, A, 10).claim(nothing)
    assert MarkPurgeClaims(outbox, B, 10).claim(nothing).ids == [1, 2, 3]


def test_a_row_in_hand_whose_mark_was_taken_off_is_not_claimed_twice() -> None:
    outbox = filled(3)
    claims = MarkPurgeClaims(outbox, A, 10)
    held = frozenset(claims.claim(nothing).ids)
    MarkPurgeClaims(outbox, B, 10).claim(nothing)
    assert claims.claim(lambda: held).ids == []


def test_a_late_row_below_the_marked_ones_is_found_by_the_next_mark() -> None:
    outbox = MemoryOutbox()
    outbox.insert("late", "t", b"late", b"1")
    outbox.insert("t", "t", b"k", b"2")
    outbox.end("t")
    claims = MarkPurgeClaims(outbox, A, 10)
    assert claims.claim(nothing).ids == [2]
    outbox.end("late")
    assert claims.claim(nothing).ids == [1]


class Watched(MemoryOutbox):
    """Notes where marks began."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        self.began.append(above)
        return super().mark(leader_id, limit, above=above, max_bytes=max_bytes)


def commit(outbox: MemoryOutbox, count: int) -> None:
    for _ in range(count):
        outbox.insert("t", "t", b"k", b"v")
    outbox.end("t")


def purge(claims: MarkPurgeClaims) -> None:
    batch = claims.claim(nothing)
    claims.purge(batch.ids, lambda: dict(zip(batch.ids, prove(batch.rows), strict=True)))


def test_marks_begin_where_nothing_can_appear_any_more() -> None:
    """So a mark does not walk over deleted rows that an old snapshot keeps."""
    outbox = Watched()
    claims = MarkPurgeClaims(outbox, A, 10)
    for _ in range(4):
        commit(outbox, 5)
        purge(claims)
    assert outbox.began == [0, 0, 5, 10]


def test_marks_begin_below_what_an_open_transaction_may_bring() -> None:
    outbox = Watched()
    outbox.insert("late", "t", b"late", b"1")
    claims = MarkPurgeClaims(outbox, A, 10)
    for _ in range(4):
        commit(outbox, 5)
        claims.claim(nothing)
    assert outbox.began == [0, 0, 0, 0]
    outbox.end("late")
    assert claims.claim(nothing).ids == [1]


def test_rows_whose_ids_began_again_are_found_by_the_next_sweep() -> None:
    outbox, now = Watched(), [0.0]
    claims = MarkPurgeClaims(outbox, A, 10, clock=lambda: now[0])
    for _ in range(3):
        commit(outbox, 5)
        purge(claims)
    outbox.put_back(OutboxRow(1, "t", b"k", b"again", (), None, None))
    assert claims.claim(nothing).ids == []
    now[0] = 61.0
    assert claims.claim(nothing).ids == [1]


def test_a_new_owner_purges_what_the_marker_names_before_its_first_mark() -> None:
    outbox = filled(4)
    claims = MarkPurgeClaims(outbox, A, 10)
    assert claims.begin(Marker(((1, 2),), 0)).purged == 2
    assert claims.claim(nothing).ids == [3, 4]


def test_the_end_of_a_term_frees_what_was_not_published() -> None:
    outbox = filled(2)
    claims = MarkPurgeClaims(outbox, A, 10)
    claims.claim(nothing)
    claims.end()
    assert outbox.reset(A) == 0


def test_a_reset_that_fails_does_not_hinder_the_end() -> None:
    class Broken(MemoryOutbox):
        def reset(self, leader_id: UUID) -> int:
            raise TransientError(f"The connection broke for {leader_id}.")

    MarkPurgeClaims(Broken(), A, 10).end()


def test_at_most_the_limit_is_in_flight_counting_what_is_marked_ahead() -> None:
    strategy = MarkPurgeStrategy(filled(100), batch_size=1000, in_flight_limit=20)
    claims = strategy.claims(A)
    assert len(claims.claim(nothing).ids) + len(claims.claim(nothing).ids) == 20


def test_what_is_in_flight_can_be_seen_while_it_is(eventually: Eventually) -> None:
    world, arrives = World(), threading.Event()

    class Slow(MemoryShardLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            arrives.wait(30)
            return super().publish(rows, marker)

    world.commit(("t", b"a", b"1"), ("t", b"b", b"2"))
    with running(world, strategy="mark-purge", log=Slow(world.broker)) as loop:
        eventually(lambda: [row.key for row in loop.in_flight()] == [b"a", b"b"])
        arrives.set()
        eventually(lambda: world.outbox.count() == 0)
        eventually(lambda: not loop.in_flight())


def test_a_retried_row_goes_before_what_waited_for_it(eventually: Eventually) -> None:
    """The row set aside comes back without a mark; taking only rows that carry ours would leave it behind."""
    world, relents = World(), threading.Event()

    class Strict(MemoryShardLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            bad = next((row for row in rows if row.value == b"bad" and not relents.is_set()), None)
            if bad is not None:
                return Incomplete(RejectedError("No.", row_id=bad.id))
            return super().publish(rows, marker)

    world.commit(("t", b"k", b"bad"), ("t", b"k", b"behind"))
    with running(world, strategy="mark-purge", log=Strict(world.broker)):
        eventually(lambda: world.exceeded.rows)
    relents.set()
    world.stop.clear()
    with running(world, strategy="mark-purge", log=Strict(world.broker)):
        eventually(lambda: world.outbox.count() == 1)
        world.exceeded.retry(1)
        eventually(lambda: world.outbox.count() == 0)
    assert world.sent() == [b"bad", b"behind"]
