"""The primary of the database changes under load: nothing is lost, duplicated or reordered, and nobody is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inorder.database.postgres import connect
from inorder.model.errors import UnreachableError
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from tests.conftest import Eventually
from tests.fault.fleet import Fleet, NewFleet, Way
from tests.standby import CAUGHT_UP, Address, Pair, ask, run_pair

DRAIN = Way("drain", leadership="database")
WAYS = [
    DRAIN,
    Way("drain", shards=2),
    Way("mark-purge", "goharvest", leadership="database"),
    # Its breaker would pause it for ten minutes.
    Way("polling", "trendyol", leadership="database", more="[relay.polling.breaker]\nopen_seconds = 1\n"),
    Way("topic-lock", "deimos", "at-least-once", "none"),
]


@pytest.fixture
def pair(tmp_path: Path, eventually: Eventually) -> Iterator[Pair]:
    with run_pair(tmp_path, eventually) as servers:
        yield servers


def wait_for_writers(fleet: Fleet) -> None:
    """Until they have committed to the new primary."""
    before = len(fleet.load.committed())
    fleet.eventually(lambda: len(fleet.load.committed()) > before)


@pytest.mark.parametrize(
    "way", [DRAIN, *(pytest.param(way, marks=[pytest.mark.full, pytest.mark.fault]) for way in WAYS[1:])], ids=str
)
def test_sessions_that_live_on_at_a_read_only_server_are_left_when_the_address_has_moved(
    new_fleet: NewFleet, pair: Pair, unique: str, way: Way
) -> None:
    pair.primary.create_database(unique)
    with Address(pair.primary) as address:
        fleet = new_fleet(way, url=address.url_of(unique))
        with fleet.load:
            fleet.start_one()
            fleet.wait_for_progress()
            pair.make_read_only()
            pair.promote()
            address.move(pair.standby)
            wait_for_writers(fleet)
            fleet.wait_for_progress()
        verdict = fleet.verdict()
    assert verdict.holds, verdict


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_of_two_hosts_the_promoted_one_is_found_though_the_first_answers_as_a_standby(
    new_fleet: NewFleet, pair: Pair, unique: str, way: Way
) -> None:
    pair.primary.create_database(unique)
    fleet = new_fleet(way, url=pair.url(unique))
    with fleet.load:
        fleet.start_staggered(2, 0.5)
        fleet.wait_for_progress()
        pair.primary.stop()
        pair.promote()
        pair.restart_as_standby()
        wait_for_writers(fleet)
        fleet.wait_for_progress()
    verdict = fleet.verdict()
    assert verdict.holds, verdict


def test_a_standby_is_read_where_it_is_the_replica_of_polling_and_refused_as_a_primary(pair: Pair, unique: str) -> None:
    primary = pair.primary.create_database(unique)
    with connect(primary, "test", autocommit=True) as connection:
        for statement in install_statements("native", "postgres", "outbox"):
            connection.execute(statement)
        connection.execute("INSERT INTO outbox (topic) VALUES ('t')")
    pair.eventually(lambda: ask(pair.primary, CAUGHT_UP) == 1)
    url = pair.standby.url_of(unique)
    with closing(PostgresOutboxStore(url, "outbox", is_primary=False)) as replica:
        assert [row.id for row in replica.read(Scan(0), 10).rows] == [1]
    with closing(PostgresOutboxStore(url, "outbox")) as store, pytest.raises(UnreachableError, match="read-only"):
        store.read(Scan(0), 10)
