"""A master that cannot extend its lease stops before the lease ends, and leads again when the server is back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from inorder.database.database import open_database
from inorder.embedded import Redis
from inorder.relay.leadership.lease import KeptLease, LeaseTimes
from inorder.relay.parts import RelayParts
from inorder.relay.stores.redis_lease import RedisLease, lease_key
from inorder.settings import Settings
from tests.conftest import Eventually

TIMES = LeaseTimes(lifetime=1.5, race=0.3, margin=0.25)
LASTING = LeaseTimes(lifetime=30, race=0.3, margin=0.25)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of its own, because others would notice that it is paused."""
    with Redis(tmp_path / "redis") as found:
        yield found


@contextmanager
def paused(server: Redis) -> Iterator[None]:
    pid = _pid(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _pid(server: Redis) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.info("server")["process_id"])


def kept(url: str, name: str, owner: str, times: LeaseTimes = TIMES) -> KeptLease:
    return KeptLease(RedisLease(url, name=name, owner=owner, seconds=times.lifetime), times)


def test_a_master_whose_redis_is_paused_stops_before_its_time_to_live_ends(
    server: Redis, unique: str, eventually: Eventually
) -> None:
    """A granted request was sent before the end, however long the answer or the machine took."""
    lease, other = kept(server.url, unique, "first"), kept(server.url, unique, "second")
    eventually(lease.acquire)
    with paused(server):
        ends_at_server = time.monotonic() + TIMES.lifetime  # at the latest: nothing is extended from here on

        def is_told_no() -> bool:
            asked_at = time.monotonic()
            leads = lease.acquire()
            assert not leads or asked_at < ends_at_server
            return not leads

        eventually(is_told_no)
        assert not lease.holds()
    eventually(lambda: other.acquire() or lease.acquire())
    assert not (lease.holds() and other.holds())
    for each in (lease, other):
        each.release()


def test_a_pause_that_is_shorter_than_the_margin_allows_costs_no_leadership(
    server: Redis, unique: str, eventually: Eventually
) -> None:
    lease = kept(server.url, unique, "first", LASTING)
    eventually(lease.acquire)
    with paused(server):
        begin = time.monotonic()
        eventually(lambda: time.monotonic() - begin > LASTING.race)
        assert lease.acquire()
    with redis.Redis.from_url(server.url) as client:
        client.pexpire(lease_key(unique), 20_000)
        eventually(lambda: client.pttl(lease_key(unique)) > 20_000)  # extended since
    assert lease.acquire()
    lease.release()


def test_the_settings_name_the_key_its_life_and_its_owner(redis_url: str, unique: str, eventually: Eventually) -> None:
    lease = {"lifetime_ms": 60_000, "race_interval_ms": 50, "name": f"{unique}:MasterPodLock", "owner": "pod-7"}
    settings = Settings.load(relay={"leadership": "redis", "lease": lease}, redis={"url": redis_url})
    parts = RelayParts(settings)
    held, unused = parts.leases()(0), open_database("sqlite:///:memory:", "test")
    eventually(held.acquire)
    assert parts.ownership(unused).holders == [("pod-7", None)]
    with redis.Redis.from_url(redis_url) as client:
        key = f"inorder:{unique}:MasterPodLock:leader"
        assert client.get(key) == b"pod-7"
        assert 3_000 < int(client.pttl(key)) <= 60_000
    held.release()
    assert parts.ownership(unused).holders == [(None, None)], "a clean stop frees it"
