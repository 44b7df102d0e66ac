"""A journal that is purged and started again in one slice is a new one in every respect."""

from __future__ import annotations

from datetime import timedelta

import psycopg
from sqlalchemy.engine import make_url

from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import NewReplicating, Store
from tests.contract.journal_store.replaying import START, Replicating


def begin_anew(journal: Replicating) -> None:
    journal.append(1, 2, 3)
    journal.flush()
    journal.segment_size = 10_000
    journal.purge()
    journal.append(1, 2, 3, 4, 5, 6, 7)
    journal.flush()


def test_it_has_the_segments_of_its_new_life(new_replicating: NewReplicating) -> None:
    journal = new_replicating(2)
    begin_anew(journal)
    head = journal.store.pointer(journal.key)
    assert head is not None
    assert (head.segment_size, head.seq_nr, head.delete_to) == (10_000, 7, None)
    assert (journal.seen(), journal.seen(5)) == ([1, 2, 3, 4, 5, 6, 7], [5, 6, 7])
    journal.append(8)
    journal.flush()
    assert journal.seen(6) == [6, 7, 8]


def test_it_was_created_and_updated_when_its_new_life_began(postgres_journal: Store, unique: str) -> None:
    store, replica = postgres_journal
    assert isinstance(replica, PostgresReplica)
    begin_anew(Replicating(replica, store, Key("id", unique), 2))
    with psycopg.connect(make_url(replica._url).set(drivername="postgresql").render_as_string(False)) as connection:
        asked = "SELECT created, updated, created_date FROM metajournal WHERE topic = %s"
        row = connection.execute(asked, (unique,)).fetchone()
    begun = START + timedelta(seconds=2)
    assert row == (begun, begun, begun.date())
