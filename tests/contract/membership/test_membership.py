"""Everybody who beats is known to all, each with a rank of its own, until it leaves or falls silent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from inorder.relay.leadership.share import MemberRank, Membership
from tests.conftest import Eventually
from tests.contract.membership.conftest import Members


def test_who_is_alone_knows_it(members: Members) -> None:
    alone = members.open("a")
    assert alone.beat() == MemberRank(1, 0)
    assert alone.beat() == MemberRank(1, 0), "another heartbeat adds no member"


def test_every_member_has_a_rank_of_its_own(members: Members) -> None:
    joined = [members.open(name) for name in ("host/2/b", "host/10/a", "Host/2/b", "höst/1")]
    for member in joined:
        member.beat()
    standings = [member.beat() for member in joined]
    assert {one.members for one in standings} == {4}
    assert sorted(one.rank for one in standings) == [0, 1, 2, 3]


def test_who_leaves_is_forgotten_at_once_and_may_come_back(members: Members) -> None:
    first, second = members.open("a"), members.open("b")
    first.beat()
    assert second.beat() == MemberRank(2, 1)
    first.leave()
    first.leave()
    assert second.beat() == MemberRank(1, 0)
    assert first.beat() == MemberRank(2, 0)
    assert second.beat() == MemberRank(2, 1)


def test_leaving_without_having_joined_harms_nobody(members: Members) -> None:
    first, second = members.open("a"), members.open("b")
    first.beat()
    second.leave()
    assert first.beat() == MemberRank(1, 0)


def test_who_falls_silent_is_forgotten(members: Members, eventually: Eventually) -> None:
    silent, second = members.open("a", seconds=0.3), members.open("b")
    silent.beat()
    eventually(lambda: second.beat() == MemberRank(1, 0))
    assert silent.beat() == MemberRank(2, 0), "and known again when it wakes up"


def test_a_short_time_of_one_does_not_shorten_that_of_another(members: Members, eventually: Eventually) -> None:
    lasting, brief, third = members.open("a"), members.open("b", seconds=0.3), members.open("c")
    lasting.beat()
    brief.beat()
    eventually(lambda: third.beat().members == 2)
    assert third.beat() == MemberRank(2, 1)


def test_groups_are_apart(members: Members) -> None:
    assert members.open("a").beat() == MemberRank(1, 0)
    assert members.open("b", group=f"{members.group}.other").beat() == MemberRank(1, 0)


def test_many_may_join_at_once(members: Members) -> None:
    joined = [members.open(f"{number:02}") for number in range(6)]

    def beats(member: Membership) -> MemberRank:
        return [member.beat() for _ in range(10)][-1]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(beats, joined))
    assert [member.beat() for member in joined] == [MemberRank(6, rank) for rank in range(6)]
