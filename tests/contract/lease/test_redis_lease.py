"""The lease key names its holder, never outlives it for long, and every failure of Redis is one of our errors."""

from __future__ import annotations

import importlib
import sys

import pytest
import redis

from inorder.database import redis as client_module
from inorder.database.redis import redis_errors
from inorder.embedded.server import free_port
from inorder.model.errors import ConfigurationError, InorderError, TransientError, UnreachableError
from inorder.relay.stores.redis_lease import RedisLease, holder_of


def test_the_key_is_named_after_the_shard_and_its_value_is_the_holder(redis_url: str, unique: str) -> None:
    assert holder_of(redis_url, unique) is None
    lease = RedisLease(redis_url, name=unique, owner="first")
    lease.acquire()
    assert holder_of(redis_url, unique) == "first"
    with redis.Redis.from_url(redis_url) as client:
        assert client.get(f"inorder:{unique}:leader") == b"first"
    lease.release()
    assert holder_of(redis_url, unique) is None


def test_winning_and_extending_both_set_the_time_it_runs_out(redis_url: str, unique: str) -> None:
    key = f"inorder:{unique}:leader"
    lease = RedisLease(redis_url, name=unique, owner="first", seconds=60)
    with redis.Redis.from_url(redis_url) as client:
        lease.acquire()
        assert 0 < client.pttl(key) <= 60_000
        client.pexpire(key, 30_000)
        lease.acquire()
        assert 30_000 < client.pttl(key) <= 60_000
    lease.release()


def test_scripts_that_the_server_forgot_are_sent_again(redis_url: str, unique: str) -> None:
    lease = RedisLease(redis_url, name=unique, owner="first")
    lease.acquire()
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
    assert lease.acquire()
    lease.release()


def test_a_server_that_is_away_is_waited_for() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    lease = RedisLease(url, name="group.0", owner="first")
    for ask in (lease.acquire, lease.release, lambda: holder_of(url, "group.0")):
        with pytest.raises(UnreachableError, match=r"redis\.url"):
            ask()


def test_a_key_of_another_type_is_for_a_person_to_mend(redis_url: str, unique: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.rpush(f"inorder:{unique}:leader", "x")
        with pytest.raises(ConfigurationError, match="WRONGTYPE"):
            RedisLease(redis_url, name=unique, owner="first").acquire()
        client.delete(f"inorder:{unique}:leader")


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (redis.exceptions.AuthenticationError("invalid password"), ConfigurationError),
        (redis.exceptions.NoPermissionError("no permissions"), ConfigurationError),
        (redis.exceptions.ConnectionError("reset by peer"), UnreachableError),
        (redis.exceptions.TimeoutError("timeout"), UnreachableError),
        (redis.exceptions.BusyLoadingError("loading"), UnreachableError),
        (redis.exceptions.ReadOnlyError("a replica"), TransientError),
        (redis.exceptions.ClusterDownError("down"), TransientError),
        (redis.exceptions.InvalidResponse("?"), TransientError),
    ],
)
def test_errors_are_ours_by_their_class(error: redis.RedisError, family: type[InorderError]) -> None:
    with pytest.raises(InorderError) as caught, redis_errors():
        raise error
    assert type(caught.value) is family
    assert caught.value.__cause__ is error


def test_a_url_that_cannot_be_read_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisLease("redis://host:geheim/0", name="group.0", owner="first")
    assert "geheim" not in str(caught.value)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, client_module.__name__)
    with pytest.raises(ConfigurationError, match=r"inorder\[redis\]"):
        importlib.import_module(client_module.__name__)
