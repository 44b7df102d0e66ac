"""Rows are read in the replica; whatever decides is asked of the primary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from inorder.database.postgres import connect
from inorder.embedded import Postgres
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.relay.parts import RelayParts
from inorder.relay.stores.outbox_store import ReplicaReads
from inorder.relay.stores.ports import OutboxStore, Scan
from inorder.settings import Settings
from tests.fakes.outbox import MemoryOutbox
from tests.operating import install_schema

POLLING = {"layout": "trendyol", "strategy": "polling"}
OUTBOX = Outbox("outbox_events", layout="trendyol")


def values(store: OutboxStore, **scan: Any) -> list[bytes | None]:
    return [row.value for row in store.read(Scan(**{"above": 0, **scan}), 10).rows]


def test_scans_go_to_the_replica_and_all_else_to_the_primary() -> None:
    primary, replica = MemoryOutbox(), MemoryOutbox()
    for outbox, value in ((primary, b"primary"), (replica, b"replica")):
        outbox.insert("done", "t", b"k", value)
        outbox.end("done")
    primary.insert("open", "t", b"k", b"not yet")
    replica.insert("nobody", "t", b"k", b"writes here")
    store = ReplicaReads(primary, replica)
    assert values(store) == [b"replica"]
    assert store.holders() == primary.holders() != replica.holders()
    assert store.purge([1]) == 1
    assert (values(primary), values(replica)) == ([], [b"replica"])
    assert store.begin_sleep() == primary.begin_sleep()
    assert not store.wait(0)
    store.end_sleep()
    store.close()


@pytest.fixture
def both(postgres: Postgres, postgres_url: str, unique: str) -> Iterator[tuple[Settings, Settings]]:
    """A database, and the same with another that is its replica as far as anybody can tell."""
    replica = postgres.create_database(f"{unique}_replica")
    for url in (postgres_url, replica):
        install_schema(Settings.load(database={"url": url}, relay=POLLING), "trendyol")
    alone = {"url": postgres_url}
    yield (
        Settings.load(database=alone, relay=POLLING),
        Settings.load(database={**alone, "read_only_url": replica}, relay=POLLING),
    )
    postgres.drop_database(f"{unique}_replica")


def test_without_a_read_only_url_everything_is_one_database(both: tuple[Settings, Settings]) -> None:
    alone, _ = both
    with connect(alone.database.require_url(), "test") as connection:
        OUTBOX.publish(connection, Message("t", value="written"))
    with closing(RelayParts(alone).scanned_store()) as store:
        assert values(store) == [b"written"]


def test_a_replica_that_lags_hides_rows_and_no_writers(both: tuple[Settings, Settings]) -> None:
    _, with_replica = both
    parts = RelayParts(with_replica)
    polling_store = parts.polling_store(parts.open_database("test"))
    with closing(parts.scanned_store()) as store, closing(polling_store) as polling:
        with connect(with_replica.database.require_url(), "test") as connection:
            OUTBOX.publish(connection, Message("t", value="on its way"))
            holders = store.holders()
            assert holders is not None
            assert len(holders) == 1
            connection.commit()
        assert store.holders() == frozenset()
        assert values(store, probes=(1,)) == [], "the replica has not got it yet"
        assert polling.state().behind == 1, "which is counted in the primary"
