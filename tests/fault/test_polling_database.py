"""A polling relay loses its database: for five minutes, and exactly between a commit and its answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from inorder.model.message import Message
from inorder.model.partitioning import Shard
from inorder.relay.leadership.lease import NoLease
from inorder.relay.options import Pace
from inorder.relay.parts import RelayParts
from inorder.relay.polling import PollingLoop, PollingTables
from inorder.settings import Settings
from tests.conftest import Eventually
from tests.fault.fleet import NewFleet, Way
from tests.integration.relay.depot import Depot
from tests.network import PostgresNetwork

CUTS = 3
OPEN_SECONDS = 600


@pytest.fixture
def depot(postgres_url: str, kafka_bootstrap: str, unique: str) -> Iterator[Depot]:
    with ExitStack() as stack:
        yield Depot(postgres_url, kafka_bootstrap, unique, stack)


class Watched:
    """A relay on its own thread, behind a gate, with a clock that the test moves."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self.now = 1000.0
        self._stop = threading.Event()
        self._settings = settings
        parts = RelayParts(settings)
        store = parts.polling_store(parts.open_database("test"))
        tables = PollingTables(parts.scanned_store(), parts.outbox_store(Shard()), store)
        log = parts.shard_log(parts.setup, 0)
        for part in (log, tables.reader, tables.primary, tables.store):
            stack.callback(part.close)
        pace = Pace(back_off=0.02, check=0.02, lease=0.02)
        options = replace(parts.polling_options(), stop=self._stop, pace=pace, clock=lambda: self.now)
        self.loop = PollingLoop(tables, log, NoLease(), options)
        self._thread = threading.Thread(target=self.loop.run)
        stack.callback(self._thread.join)
        stack.callback(self._stop.set)
        self._thread.start()

    def outbox_breaker(self) -> str:
        return self.loop.progress.breakers["outbox"]


@pytest.mark.full
def test_a_database_that_is_away_for_five_minutes_is_left_alone_and_found_again(
    depot: Depot, eventually: Eventually
) -> None:
    """By the relay's clock: three queries, then none at all, and it continues by itself when the breaker closes."""
    topic = depot.topic()
    with PostgresNetwork(depot.url) as gate, ExitStack() as stack:
        relay = Watched(depot.settings().model_copy(update={"database": through(depot, gate)}), stack)
        depot.publish(Message(topic, key="k", value="before"))
        eventually(lambda: depot.values(topic) == [b"before"])
        gate.shut()
        depot.publish(Message(topic, key="k", value="after"))
        eventually(lambda: relay.outbox_breaker() == "open")
        asked = gate.turned_away
        assert asked <= 6, "three failures, and connections that each of them tried"
        for _ in range(10):
            relay.now += 30
            threading.Event().wait(0.05)
        assert (gate.turned_away, relay.outbox_breaker()) == (asked, "open")
        gate.open()
        relay.now += OPEN_SECONDS - 300
        eventually(lambda: depot.values(topic) == [b"before", b"after"])
        eventually(lambda: relay.outbox_breaker() == "closed")
    assert depot.is_done()


def through(depot: Depot, gate: PostgresNetwork) -> object:
    """The database section of an instance behind the gate."""
    return Settings.load(database={"url": gate.url}, relay={"group": depot.group}).database


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [pytest.param("UPDATE", marks=pytest.mark.fault), "COMMIT"],
    ids=["only the offset", "with missing events"],
)
def test_a_connection_cut_exactly_after_the_settlement_costs_nothing(
    new_fleet: NewFleet, postgres_url: str, eventually: Eventually, command: str
) -> None:
    more = "[relay.polling]\nqueue_wait_ms = 20\nmissing_wait_ms = 300\n"
    with PostgresNetwork(postgres_url) as proxy:
        fleet = new_fleet(Way("polling", "trendyol", leadership="none", more=more), relay_url=proxy.url)
        with fleet.load:
            fleet.start_one()
            for number in range(CUTS):
                fleet.wait_for_progress()
                proxy.cut_after(command)
                eventually(lambda: proxy.has_cut(number))  # noqa: B023 - called at once
        verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert proxy.cuts == CUTS
