"""A share is fair, moves no more than it must, and no instance holds more than it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import TransientError
from inorder.relay.leadership.share import MemberRank, Share, SharedLease, excess, fair_share

SHARDS = st.integers(1, 64)
MEMBERS = st.integers(1, 20)
ALONE = MemberRank(members=1, rank=0)


@pytest.mark.parametrize(
    ("shards", "shares"),
    [
        (1, [1]),
        (1, [1, 0, 0]),
        (4, [4]),
        (4, [2, 2]),
        (4, [2, 1, 1]),
        (4, [1, 1, 1, 1, 0, 0]),
        (16, [6, 5, 5]),
        (17, [6, 6, 5]),
    ],
)
def test_the_shares_of_some_groups(shards: int, shares: list[int]) -> None:
    assert [fair_share(shards, len(shares), rank) for rank in range(len(shares))] == shares


@given(SHARDS, MEMBERS)
def test_shares_add_up_and_differ_by_one_at_most(shards: int, members: int) -> None:
    shares = [fair_share(shards, members, rank) for rank in range(members)]
    assert sum(shares) == shards
    assert max(shares) - min(shares) <= 1
    assert fair_share(shards, members) == -(-shards // members), "the first has the share rounded up"


@given(SHARDS, MEMBERS, st.data())
def test_nobody_gains_by_a_newcomer_or_loses_by_a_leaver(shards: int, members: int, data: st.DataObject) -> None:
    """So only what the newcomer takes, or the leaver had, moves."""
    newcomer = data.draw(st.integers(0, members))
    for rank in range(members):
        rank_after = rank + (rank >= newcomer)
        assert fair_share(shards, members + 1, rank_after) <= fair_share(shards, members, rank)


@given(st.frozensets(st.integers(0, 63)), st.integers(0, 70))
def test_the_highest_shards_are_given_up_and_no_more_than_needed(held: frozenset[int], share: int) -> None:
    given_up = excess(held, share)
    kept = held - given_up
    assert len(kept) == min(len(held), share)
    assert all(low < high for low in kept for high in given_up)


@dataclass
class Crowd:
    """A membership that returns what the test says."""

    standing: MemberRank = ALONE
    beats: int = 0
    left: int = 0
    is_away: bool = False

    def beat(self) -> MemberRank:
        if self.is_away:
            raise TransientError("away")
        self.beats += 1
        return self.standing

    def leave(self) -> None:
        self.left += 1


@dataclass
class Ledger:
    """A lease that the test gives and takes."""

    is_free: bool = True
    acquired: int = 0
    released: int = 0
    is_away: bool = False

    def acquire(self) -> bool:
        if self.is_away:
            raise TransientError("away")
        self.acquired += 1
        return self.is_free

    def release(self) -> None:
        self.released += 1

    def holds(self) -> bool:
        return True

    def arbitrates(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def share(crowd: Crowd, clock: Clock) -> Share:
    return Share(4, crowd, clock=clock)


def test_who_is_alone_may_hold_everything(share: Share) -> None:
    assert all(share.grants(shard) for shard in range(4))


def test_free_shards_are_tried_only_below_the_share(crowd: Crowd, share: Share) -> None:
    crowd.standing = MemberRank(2, 0)
    assert [share.grants(shard) for shard in range(4)] == [True, True, False, False]
    share.give_back(0)
    assert share.grants(3), "the one that was tried in vain makes room"
    assert not share.grants(0)
    assert share.held == {1, 3}


def test_what_is_held_is_kept_up_to_the_share(crowd: Crowd, clock: Clock, share: Share) -> None:
    assert all(share.grants(shard) for shard in range(4))
    crowd.standing = MemberRank(3, 1)
    clock.now = 1.0
    assert [share.grants(shard) for shard in range(4)] == [True, False, False, False]
    assert share.held == {0, 1, 2, 3}, "held until it is given back"


def test_all_loops_together_beat_once_a_second(crowd: Crowd, clock: Clock, share: Share) -> None:
    for step in range(40):
        clock.now = step * 0.1
        share.grants(step % 4)
    assert crowd.beats == 4


def test_the_instance_leaves_with_its_last_shard_and_once(crowd: Crowd, share: Share) -> None:
    share.leave(0)
    assert crowd.left == 0, "it never came"
    share.grants(0)
    share.grants(1)
    share.leave(0)
    assert crowd.left == 0
    share.leave(1)
    share.leave(1)
    assert crowd.left == 1
    share.grants(0)
    assert crowd.beats == 2, "and comes back at once when it is asked again"


def test_a_membership_that_is_away_is_told_and_asked_again(crowd: Crowd, clock: Clock, share: Share) -> None:
    crowd.is_away = True
    with pytest.raises(TransientError):
        share.grants(0)
    crowd.is_away = False
    assert share.grants(0)


def test_a_lease_is_given_up_when_its_loop_has_stopped(crowd: Crowd, clock: Clock, share: Share) -> None:
    leases = [Ledger() for _ in range(4)]
    shared = [SharedLease(lease, share, shard) for shard, lease in enumerate(leases)]
    assert all(lease.acquire() for lease in shared)
    crowd.standing = MemberRank(2, 0)
    clock.now = 1.0
    assert [lease.acquire() for lease in shared] == [True, True, False, False]
    assert [lease.acquired for lease in leases] == [2, 2, 2, 2], "extended, so that no other begins meanwhile"
    assert [lease.released for lease in leases] == [0, 0, 0, 0]
    assert [lease.acquire() for lease in shared] == [True, True, False, False]
    assert [lease.released for lease in leases] == [0, 0, 1, 1]
    assert [lease.acquire() for lease in shared] == [True, True, False, False]
    assert [lease.released for lease in leases] == [0, 0, 1, 1], "once"
    assert [lease.acquired for lease in leases] == [4, 4, 2, 2], "and not asked for any more"


def test_a_lease_that_another_holds_makes_room_for_the_next(crowd: Crowd, share: Share) -> None:
    crowd.standing = MemberRank(4, 0)
    first, second = SharedLease(Ledger(is_free=False), share, 0), SharedLease(Ledger(), share, 1)
    assert not first.acquire()
    assert second.acquire()
    assert not first.acquire()
    assert share.held == {1}


def test_a_lease_that_fails_keeps_its_place(crowd: Crowd, share: Share) -> None:
    crowd.standing = MemberRank(4, 0)
    ledger = Ledger()
    first, second = SharedLease(ledger, share, 0), SharedLease(Ledger(), share, 1)
    assert first.acquire()
    ledger.is_away = True
    with pytest.raises(TransientError):
        first.acquire()
    assert not second.acquire(), "the first may still be ours"
    ledger.is_away = False
    assert first.acquire()


def test_releasing_frees_the_lease_and_the_place(crowd: Crowd, share: Share) -> None:
    ledger = Ledger()
    lease = SharedLease(ledger, share, 2)
    assert lease.acquire()
    lease.release()
    assert (ledger.released, share.held, crowd.left) == (1, frozenset(), 1)
    assert lease.arbitrates()
