"""Half a character, which JSON can spell and no store can hold, parks its journal and no other."""

from __future__ import annotations

from dataclasses import replace

from inorder.journal.replication.job import ReplicateWorker
from tests.contract.journal_store.conftest import NewReplicating
from tests.contract.journal_store.replaying import slice_of


def test_a_text_that_no_store_holds_parks_its_own_journal(new_replicating: NewReplicating) -> None:
    journal = new_replicating(2)
    other = replace(journal.key, id="other")
    journal.append(1, payload="half")
    journal.append(1, payload="whole", key=other)
    (offset, record), *rest = journal._waiting
    assert record.value is not None
    half = (offset, replace(record, value=record.value.replace(b"half", b"\\ud800")))
    outcome = ReplicateWorker(journal.replica, 2).apply(slice_of(journal.key.topic, 0, [half, *rest]), 0)
    assert (outcome.rejected, outcome.applied) == (1, 1)
    assert [event.event.payload for event in journal.events(key=other)] == ["whole"]
