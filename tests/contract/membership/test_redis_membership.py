"""The members of a group are one key in Redis that does not outlive them, and every failure is one of our errors."""

from __future__ import annotations

import pytest
import redis

from inorder.embedded.server import free_port
from inorder.model.errors import UnreachableError
from inorder.relay.leadership.share import MemberRank
from inorder.relay.stores.redis_lease import RedisMembership, members_key, members_of


def test_the_key_is_named_after_the_group_and_runs_out_with_its_members(redis_url: str, unique: str) -> None:
    member = RedisMembership(redis_url, group=unique, instance="a", seconds=60)
    member.beat()
    with redis.Redis.from_url(redis_url) as client:
        assert members_key(unique) == f"inorder:{unique}:members"
        assert client.zrange(members_key(unique), 0, -1) == [b"a"]
        assert 0 < client.pttl(members_key(unique)) <= 60_000
        member.leave()
        assert not client.exists(members_key(unique))


def test_the_members_are_those_that_are_alive_by_the_clock_of_the_server(redis_url: str, unique: str) -> None:
    assert members_of(redis_url, unique) == []
    members = [RedisMembership(redis_url, group=unique, instance=name, seconds=60) for name in ("b", "a")]
    for member in members:
        member.beat()
    with redis.Redis.from_url(redis_url) as client:
        client.zadd(members_key(unique), {"gone": 1})
    assert members_of(redis_url, unique) == ["a", "b"]
    for member in members:
        member.leave()


def test_scripts_that_the_server_forgot_are_sent_again(redis_url: str, unique: str) -> None:
    member = RedisMembership(redis_url, group=unique, instance="a")
    member.beat()
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
    assert member.beat() == MemberRank(1, 0)
    member.leave()


def test_a_server_that_is_away_is_waited_for() -> None:
    member = RedisMembership(f"redis://127.0.0.1:{free_port()}/0", group="g", instance="a")
    for ask in (member.beat, member.leave):
        with pytest.raises(UnreachableError, match=r"redis\.url"):
            ask()
