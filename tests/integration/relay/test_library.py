"""`inorder.Relay` as a program holds it: what may be called when, what it tells, and what it raises."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import inorder
from inorder.embedded import Kafka
from inorder.model.errors import ConfigurationError
from inorder.relay.events import LeaderAcquired, LeaderRevoked, MeterRead, RelayEvent
from tests.conftest import Eventually
from tests.contract.shard_log.conftest import settle
from tests.integration.relay.conftest import Bench
from tests.selection import few


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker to be paused."""
    with Kafka(tmp_path) as broker:
        settle(broker)
        yield broker


def state_of(relay: inorder.Relay) -> str:
    return relay.state.value


def test_a_relay_starts_once_and_stops_once_however_often_it_is_asked(bench: Bench, eventually: Eventually) -> None:
    relay = inorder.Relay(bench.settings(leadership="none"))
    assert state_of(relay) == "created"
    assert not relay.wait(0)
    relay.start()
    relay.start()
    assert state_of(relay) == "running"
    eventually(lambda: relay.is_leader)
    assert not relay.wait(0.01), "it has not ended"
    assert relay.stop()
    assert relay.stop()
    assert relay.wait()
    assert state_of(relay) == "stopped"
    relay.start()
    assert state_of(relay) == "stopped"
    assert (relay.is_leader, relay.leader_id, relay.in_flight) == (False, None, 0)


def test_a_relay_that_was_stopped_before_its_start_never_starts(bench: Bench) -> None:
    relay = inorder.Relay(bench.settings(leadership="none"))
    assert relay.stop()
    assert state_of(relay) == "stopped"
    assert relay.wait()
    with pytest.raises(ConfigurationError, match="was stopped"):
        relay.start()


def test_a_block_that_raises_stops_its_relay_and_lets_the_error_through(bench: Bench) -> None:
    relay = inorder.Relay(bench.settings(leadership="none"))
    with pytest.raises(ZeroDivisionError), relay:
        raise ZeroDivisionError
    assert state_of(relay) == "stopped"


@pytest.mark.full
def test_a_handler_hears_every_event_in_order_and_is_set_before_the_start_only(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    events: list[RelayEvent] = []
    relay = inorder.Relay(bench.settings(leadership="kafka"))
    relay.on_event(events.append)
    with relay:
        with pytest.raises(ConfigurationError, match="has been started"):
            relay.on_event(print)
        bench.publish(inorder.Message(unique, key="k", value="1"), inorder.Message(unique, key="k", value="2"))
        eventually(lambda: relay.published == 2)
        leader_id = relay.leader_id
        assert leader_id is not None
        assert relay.leader_ids == {0: leader_id}
        # A reading is due every five seconds, whether anything is published or not.
        eventually(lambda: any(isinstance(event, MeterRead) and event.total == 2 for event in events))
    acquired, *readings, revoked = events
    assert acquired == LeaderAcquired(0, leader_id)
    assert revoked == LeaderRevoked(0, leader_id)
    assert all(isinstance(reading, MeterRead) for reading in readings)


def test_a_handler_that_raises_hinders_nobody(bench: Bench, unique: str, eventually: Eventually) -> None:
    def fail(_event: RelayEvent) -> None:
        raise ZeroDivisionError

    relay = inorder.Relay(bench.settings(leadership="none"))
    relay.on_event(fail)
    with relay:
        bench.publish(inorder.Message(unique, key="k", value="1"))
        eventually(lambda: relay.published == 1)


@pytest.mark.full
def test_the_state_of_each_of_two_instances_is_its_own(bench: Bench, unique: str, eventually: Eventually) -> None:
    settings = bench.settings(leadership="database", shards=2, lease={"lifetime_ms": 30_000})
    with inorder.Relay(settings) as first, inorder.Relay(settings) as second:
        eventually(lambda: len(first.leader_ids) == len(second.leader_ids) == 1)
        assert set(first.leader_ids) | set(second.leader_ids) == {0, 1}
        assert first.leader_id != second.leader_id
        bench.publish(*(inorder.Message(unique, key=str(number), value="x") for number in range(100)))
        eventually(lambda: bench.count() == 0)
        eventually(lambda: first.published + second.published == 100)
        assert first.published > 0
        assert second.published > 0


@pytest.mark.full
@pytest.mark.parametrize("strategy", few(["drain", "mark-purge"], "drain"))
def test_rows_on_their_way_are_told_by_key(
    bench: Bench, own_broker: Kafka, unique: str, eventually: Eventually, strategy: str
) -> None:
    bench.bootstrap = own_broker.bootstrap
    with inorder.Relay(bench.settings(leadership="none", strategy=strategy)) as relay:
        bench.publish(inorder.Message(unique, key="0", value="x"))
        eventually(lambda: relay.published == 1)
        os.kill(own_broker.pids[0], signal.SIGSTOP)  # it acknowledges nothing meanwhile
        try:
            bench.publish(*(inorder.Message(unique, key=str(number % 2), value="x") for number in range(6)))
            eventually(lambda: relay.in_flight == 6)
            assert relay.in_flight_keys == {(unique, b"0"), (unique, b"1")}
            assert relay.published == 1
        finally:
            os.kill(own_broker.pids[0], signal.SIGCONT)
        eventually(lambda: relay.published == 7)
        assert (relay.in_flight, relay.in_flight_keys) == (0, frozenset())


def test_what_ends_a_relay_is_logged_even_if_no_call_waits_for_it(
    bench: Bench, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    relay = inorder.Relay(bench.settings(leadership="none", table="nowhere"))
    with caplog.at_level("ERROR", "inorder.relay"):
        relay.start()
        eventually(lambda: state_of(relay) == "stopped")
    (ended,) = [vars(record) for record in caplog.records if record.message == "relay.ended"]
    assert "nowhere" in ended["error"]
    assert ended["code"].startswith("CONFIG")


def test_what_ends_a_relay_is_raised_from_wait_each_time(bench: Bench) -> None:
    with inorder.Relay(bench.settings(leadership="none", table="nowhere", shards=2)) as relay:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="nowhere"):
                relay.wait(60)
        assert state_of(relay) == "stopped"
        assert relay.stop()
