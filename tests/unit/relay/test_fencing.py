"""A term is ended from outside: its owner can commit nothing more, and the next one finds the same marker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inorder.kafka.shard_log import Delivery, require_delivered
from inorder.model.errors import FencedError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.marker import FENCE_TRIES, Marker, end_term, insist
from inorder.relay.options import LoopOptions
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.unit.relay.running import World

ROW = OutboxRow(1, "orders", b"k", b"v", (), None, None)


def test_an_owner_whose_term_was_ended_can_commit_nothing_more() -> None:
    broker = MemoryBroker()
    owner = MemoryShardLog(broker)
    owner.take_over()
    require_delivered(owner.publish([ROW], b"mine"))
    end_term(lambda: MemoryShardLog(broker))
    with pytest.raises(FencedError):
        require_delivered(owner.publish([ROW], b"mine again"))
    assert owner.take_over() == b"mine"


def test_a_shard_that_nobody_ever_owned_gets_an_empty_marker() -> None:
    broker = MemoryBroker()
    end_term(lambda: MemoryShardLog(broker))
    assert broker.marker == Marker().encode()


def test_an_owner_that_fences_back_is_fenced_again() -> None:
    broker = MemoryBroker()
    owner = MemoryShardLog(broker)

    class Overtaken(MemoryShardLog):
        times = 3

        def take_over(self) -> bytes | None:
            found = super().take_over()
            if Overtaken.times:
                Overtaken.times -= 1
                owner.take_over()
            return found

    end_term(lambda: Overtaken(broker))
    with pytest.raises(FencedError):
        require_delivered(owner.publish([ROW], b""))


def test_somebody_who_never_lets_go_and_other_troubles_are_told() -> None:
    tried: list[int] = []

    def fail() -> None:
        tried.append(1)
        raise FencedError("Overtaken.")

    with pytest.raises(FencedError):
        insist(fail)
    assert len(tried) == FENCE_TRIES

    def unreachable() -> None:
        raise UnreachableError("No broker.")

    with pytest.raises(UnreachableError):
        insist(unreachable)


def test_with_no_election_the_error_claims_no_other_instance() -> None:
    """There may be none: a broker also fences a relay whose transaction it ended after a long pause."""
    hint = "Another instance of this relay group has taken the shard over."

    class Fenced(MemoryShardLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
            raise FencedError("Publishing as 'inorder.g.0': fenced.", hint=hint)

    world = World()
    world.commit(("t", b"k", b"v"))
    log = Fenced(world.broker)
    loop = RelayLoop(DrainStrategy(world.outbox, 10), world.exceeded, log, NoLease(), LoopOptions(stop=world.stop))
    with pytest.raises(FencedError, match=r"Publishing as 'inorder\.g\.0': fenced") as caught:
        loop.run()
    assert hint not in caught.value.hint
    assert 'relay.leadership = "none"' in caught.value.hint
