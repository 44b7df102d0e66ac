"""The relay loses its database at the worst moments, and nothing is lost, duplicated or reordered."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from inorder.database.postgres import connect
from inorder.embedded import Postgres
from tests.conftest import Eventually
from tests.fault.fleet import Fleet, NewFleet, Way
from tests.injections import INJECTIONS
from tests.network import PostgresNetwork

CUTS = 3
ENDINGS = 6

DRAIN = Way("drain", leadership="database")
MARK_PURGE = Way("mark-purge", "goharvest", leadership="database")

_END_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'inorder%'
"""


@pytest.mark.parametrize(
    ("way", "command"),
    [
        (Way("drain", leadership="none"), "DELETE"),
        pytest.param(Way("mark-purge", leadership="none"), "DELETE", marks=pytest.mark.full),
        # A mark is an UPDATE inside a SELECT, and the only one that finds rows while the relay runs.
        pytest.param(Way("mark-purge", leadership="none"), "SELECT", marks=pytest.mark.full),
    ],
    ids=["drain, purge", "mark-purge, purge", "mark-purge, mark"],
)
def test_a_connection_cut_exactly_after_the_commit_costs_nothing(
    new_fleet: NewFleet, postgres_url: str, eventually: Eventually, way: Way, command: str
) -> None:
    with PostgresNetwork(postgres_url) as proxy:
        fleet = new_fleet(way, relay_url=proxy.url)
        with fleet.load:
            fleet.start_one()
            for number in range(CUTS):
                fleet.wait_for_progress()
                proxy.cut_after(command)
                eventually(lambda: proxy.cuts > number)  # noqa: B023 - called at once
        verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert proxy.cuts == CUTS


@pytest.mark.full
def test_a_connection_cut_exactly_before_the_purge_costs_nothing(
    new_fleet: NewFleet, postgres_url: str, eventually: Eventually
) -> None:
    """What was published is still in the outbox then; the marker knows it."""
    with PostgresNetwork(postgres_url) as network:
        fleet = new_fleet(Way("drain", leadership="none"), relay_url=network.url)
        with fleet.load:
            fleet.start_one()
            for number in range(CUTS):
                fleet.wait_for_progress()
                network.cut_before("DELETE")
                eventually(partial(network.has_cut, number))
        verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert network.cuts == CUTS


@pytest.mark.full
@pytest.mark.parametrize("way", [pytest.param(DRAIN, marks=pytest.mark.fault), MARK_PURGE], ids=str)
def test_sessions_ended_at_random_moments_cost_nothing(new_fleet: NewFleet, way: Way) -> None:
    fleet, chance, ended = new_fleet(way), random.Random(11), 0
    with fleet.load:
        fleet.start_staggered(2, 0.5)
        with connect(fleet.place.url, "test", autocommit=True) as connection:
            for _ in range(ENDINGS):
                fleet.wait_for_progress()
                threading.Event().wait(chance.uniform(0, 0.3))
                (found,) = connection.execute(_END_SESSIONS).fetchone() or (0,)
                ended += found
                INJECTIONS.note("database sessions ended by the server")
        fleet.wait_for_progress()
    verdict = fleet.verdict()
    assert verdict.holds, verdict
    assert ended > ENDINGS


@pytest.fixture(scope="module")
def durable_postgres(servers_folder: Path) -> Iterator[Postgres]:
    """A durable server: it keeps what it has committed, even when it is killed."""
    with Postgres(servers_folder / "durable-postgres") as server:
        yield server


def lose(server: Postgres, fleet: Fleet, *, crash: bool) -> None:
    """Takes the database down for a moment, by a crash or by a restart."""
    fleet.history.append(f"{'crash' if crash else 'restart'} of the database with {fleet.waiting()} rows waiting")
    if crash:
        server.kill()
    else:
        INJECTIONS.note("Postgres restarted")
        server.stop()
    for instance in fleet.running():
        instance.check()
    server.start()
    fleet.wait_for_progress()


@pytest.mark.full
@pytest.mark.parametrize("way", [DRAIN, pytest.param(MARK_PURGE, marks=pytest.mark.fault)], ids=str)
def test_a_database_that_crashes_and_restarts_under_load_costs_time_and_nothing_else(
    new_fleet: NewFleet, durable_postgres: Postgres, unique: str, way: Way
) -> None:
    fleet = new_fleet(way, url=durable_postgres.create_database(unique))
    with fleet.load:
        fleet.start_staggered(2, 0.5)
        fleet.wait_for_progress()
        lose(durable_postgres, fleet, crash=True)
        lose(durable_postgres, fleet, crash=False)
    verdict = fleet.verdict()
    assert verdict.holds, verdict
