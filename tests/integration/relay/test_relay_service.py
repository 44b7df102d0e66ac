"""The relay as an application embeds it: one instance works, the next takes over, and settings decide."""

from __future__ import annotations

import os

import pytest

import inorder
from inorder.embedded.server import free_port
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.operating import relay_status
from tests.selection import few


@pytest.mark.full
def test_a_relay_in_your_process_carries_what_you_commit(bench: Bench, unique: str, eventually: Eventually) -> None:
    with inorder.Relay(bench.settings()) as relay:
        bench.publish(inorder.Message(unique, key=1, value={"id": 1}))
        eventually(lambda: relay.published == 1)
        assert relay.is_leader
        assert not relay.wait(0)
    assert relay.wait(0)
    assert [record.value for record in read_back(bench.properties, unique)] == [b'{"id":1}']


@pytest.mark.full
@pytest.mark.parametrize("leadership", few(["kafka", "database", "redis"], "redis"))
def test_of_two_instances_one_leads_and_the_other_follows_when_it_stops(
    bench: Bench, redis_url: str, unique: str, eventually: Eventually, leadership: str
) -> None:
    settings = bench.settings(redis_url=redis_url, leadership=leadership, lease={"lifetime_ms": 30_000})
    first, second = inorder.Relay(settings), inorder.Relay(settings)
    with first:
        eventually(lambda: first.is_leader)
        with second:
            bench.publish(inorder.Message(unique, key="k", value="1"))
            eventually(lambda: first.published == 1)
            assert not second.is_leader
            first.stop()
            eventually(lambda: second.is_leader)
            bench.publish(inorder.Message(unique, key="k", value="2"))
            eventually(lambda: second.published == 1)
    assert [record.value for record in read_back(bench.properties, unique)] == [b"1", b"2"]


def test_the_status_tells_what_waits_and_who_owns_it(bench: Bench, unique: str, eventually: Eventually) -> None:
    settings = bench.settings(leadership="database")
    bench.publish(inorder.Message(unique, value="x"), inorder.Message(unique, value="y"))
    status = relay_status(settings)
    assert (status["waiting"], status["owner"]) == (2, None)
    assert status["oldest_seconds"] >= 0
    with inorder.Relay(settings):
        eventually(lambda: relay_status(settings)["waiting"] == 0)
        eventually(lambda: relay_status(settings)["owner"] is not None)
        assert relay_status(settings)["term"] == 1


def test_the_status_names_the_owner_by_the_key_in_redis(bench: Bench, redis_url: str, eventually: Eventually) -> None:
    settings = bench.settings(redis_url=redis_url, leadership="redis")
    assert relay_status(settings)["owner"] is None
    with inorder.Relay(settings):
        owner = eventually(lambda: relay_status(settings)["owner"])
        assert str(os.getpid()) in owner
    assert (relay_status(settings)["owner"], relay_status(settings)["term"]) == (None, None)


def test_the_status_names_the_owner_that_was_elected(bench: Bench, eventually: Eventually) -> None:
    settings = bench.settings(leadership="kafka", shards=2)
    assert relay_status(settings)["owners"] == [None, None]
    with inorder.Relay(settings) as relay:
        eventually(lambda: len(relay.leader_ids) == 2)
        eventually(lambda: all(relay_status(settings)["owners"]))
        status = relay_status(settings)
        assert len(status["owners"]) == 2
        assert all(f"/{os.getpid()}/" in owner for owner in status["owners"])
        assert status["owner"] == status["owners"][0]
        assert status["instances"] == sorted(set(status["owners"]))
    assert relay_status(settings)["owners"] == [None, None]


@pytest.mark.full
def test_the_status_names_nobody_where_the_broker_is_away(bench: Bench) -> None:
    settings = bench.settings(bootstrap=f"127.0.0.1:{free_port()}", leadership="kafka")
    assert relay_status(settings)["owners"] == [None]


def test_a_missing_outbox_table_ends_the_relay_with_the_command_that_makes_it(bench: Bench) -> None:
    with inorder.Relay(bench.settings(table="nowhere")) as relay, pytest.raises(ConfigurationError, match="schema"):
        relay.wait(60)


def test_a_database_that_nobody_knows_is_refused_by_name_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"database\.url = 'oracle://u@h/d'") as caught:
        inorder.Settings.load(database={"url": "oracle://u@h/d"})
    assert all(f"{known}://" in str(caught.value) for known in ("postgresql+psycopg", "mysql+pymysql", "sqlite"))
