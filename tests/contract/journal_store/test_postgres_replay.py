"""Lost heads and offsets are rebuilt from the topic; events that are already stored are kept."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy.engine import make_url

from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.model.errors import GuaranteeError
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import Replicating, slice_of


def test_lost_heads_and_offsets_are_made_again_from_the_topic(postgres_journal: Store, unique: str) -> None:
    store, replica = postgres_journal
    assert isinstance(replica, PostgresReplica)
    journal = Replicating(replica, store, Key("id", unique), 2)
    journal.append(1, 2, tags=["a", "b"], headers={"who": "me"})
    journal.append(3)
    records = list(journal._waiting)
    journal.flush()
    before = journal.events()
    worker, batch = ReplicateWorker(replica, 2), slice_of(unique, 0, records)
    with psycopg.connect(make_url(replica._url).set(drivername="postgresql").render_as_string(False)) as connection:
        for table in ("metajournal", "pointer2"):
            connection.execute(f"DELETE FROM {table} WHERE topic = %s", (unique,))
    with pytest.raises(GuaranteeError, match="says that 0 is due, but all below 2 was replicated before"):
        worker.apply(batch, expected=2)
    outcome = worker.apply(batch, expected=0)
    assert (outcome.applied, outcome.rejected) == (2, 0)
    assert (journal.events(), journal.pointer()) == (before, (1, 3))
