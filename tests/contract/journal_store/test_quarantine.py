"""Both stores keep records that cannot be read, and report them to readers, until they are released or purged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inorder.journal.replication.job import ReplicateWorker, release
from inorder.journal.replication.store_port import Quarantine
from inorder.model.errors import DamagedRecordError, RejectedError
from inorder.model.journal import Key
from inorder.model.message import Record
from tests.contract.journal_store.conftest import NewReplicating
from tests.contract.journal_store.replaying import Replicating, slice_of
from tests.selection import few
from tests.unit.journal.poison import LONG_ID, POISONS, UNSTORABLE


@pytest.fixture
def journal(new_replicating: NewReplicating) -> Replicating:
    return new_replicating(2)


def damage(journal: Replicating, seq_nr: int, key: Key | None = None) -> Record:
    """Writes a record whose events cannot be read; returns it as it should have been."""
    journal.append(seq_nr, headers={"who": "me"}, key=key)
    offset, record = journal._waiting.pop()
    journal._waiting.append((offset, replace(record, value=b"\x00damaged")))
    return record


def quarantine_of(journal: Replicating) -> Quarantine:
    replica = journal.replica
    assert hasattr(replica, "quarantined")
    return replica  # type: ignore[return-value]  # both stores' replicas are quarantines too


def waiting(journal: Replicating) -> list[int]:
    return [each.offset for each in quarantine_of(journal).quarantined(journal.key.topic)]


def test_a_damaged_record_parks_its_journal_until_it_is_released(journal: Replicating) -> None:
    journal.append(1)
    readable = damage(journal, 2)
    journal.append(3, 4)
    journal.append(7, key=replace(journal.key, id="other"))
    journal.flush()
    assert (waiting(journal), journal.seen(key=replace(journal.key, id="other"))) == ([1, 2], [7])
    with pytest.raises(DamagedRecordError, match="offset 1 on are in quarantine"):
        journal.store.pointer(journal.key)
    journal.append(5)
    journal.flush()
    store = quarantine_of(journal)
    first = store.quarantined(journal.key.topic, journal.key.id)[0]
    assert (waiting(journal), first.record.value, first.record.key) == ([1, 2, 4], b"\x00damaged", b"id")
    assert (first.record.headers, first.record.timestamp_ms) == (readable.headers, readable.timestamp_ms)
    with pytest.raises(DamagedRecordError):
        release(store, journal.key, 2)
    assert store.discard(journal.key, 1) == 1
    assert release(store, journal.key, 2) == 2
    assert (waiting(journal), journal.seen()) == ([], [1, 3, 4, 5])
    journal.append(6)
    journal.flush()
    assert journal.seen() == [1, 3, 4, 5, 6]


def test_a_parked_journal_is_named_once_though_it_has_no_head_and_reading_it_tells(journal: Replicating) -> None:
    damage(journal, 1)
    journal.append(2)
    with_head = replace(journal.key, id="with head")
    journal.append(1, key=with_head)
    journal.append(1, key=replace(journal.key, id="sound"))
    journal.flush()
    damage(journal, 2, with_head)
    journal.flush()
    assert sorted(journal.store.ids(journal.key.topic)) == ["id", "sound", "with head"]
    for key in (journal.key, with_head):
        with pytest.raises(DamagedRecordError):
            journal.store.pointer(key)
    quarantine_of(journal).discard(journal.key)
    assert sorted(journal.store.ids(journal.key.topic)) == ["sound", "with head"]


def test_more_parked_journals_than_a_page_are_all_named(journal: Replicating) -> None:
    ids = sorted(f"id {number}" for number in range(9))
    for number, id in enumerate(ids):
        (damage if number % 2 else Replicating.append)(journal, 1, key=replace(journal.key, id=id))
    journal.flush()
    assert sorted(journal.store.ids(journal.key.topic)) == ids


def test_a_purge_frees_it_and_a_replay_does_not_park_it_again(journal: Replicating) -> None:
    damage(journal, 1)
    records = list(journal._waiting)
    journal.flush()
    assert waiting(journal) == [0]
    assert journal.key in {each.key for each in quarantine_of(journal).quarantined()}
    journal.purge()
    journal.append(1)
    journal.flush()
    assert (waiting(journal), journal.seen()) == ([], [1])
    ReplicateWorker(journal.replica, 2).apply(slice_of(journal.key.topic, 0, records), expected=0)
    assert (waiting(journal), journal.seen()) == ([], [1])


def test_text_that_postgresql_cannot_hold_parks_its_journal_alone(journal: Replicating) -> None:
    journal.append(1)
    journal.append(2, payload="a\0b")
    journal.append(3)
    journal.append(1, key=replace(journal.key, id="other"))
    journal.flush()
    assert journal.seen(key=replace(journal.key, id="other")) == [1]
    if waiting(journal):  # Cassandra holds any text
        assert waiting(journal) == [1, 2]
        assert quarantine_of(journal).discard(journal.key) == 2
        assert journal.seen() == [1]
    else:
        assert journal.seen() == [1, 2, 3]


@pytest.mark.parametrize(
    "poison", few([*UNSTORABLE, *POISONS], *UNSTORABLE, "time in microseconds", "key of 20,000 bytes")
)
def test_a_poison_record_parks_its_own_journal_and_is_kept_as_it_came(journal: Replicating, poison: str) -> None:
    other = replace(journal.key, id="other")
    journal.append(1)
    journal.append(2)
    offset, record = journal._waiting.pop()
    poisoned = (POISONS | UNSTORABLE)[poison](record)
    journal._waiting.append((offset, poisoned))
    journal.append(1, key=other)
    journal.flush()
    assert journal.seen(key=other) == [1]
    [kept] = quarantine_of(journal).quarantined(journal.key.topic)
    assert (kept.record.key, kept.record.value, kept.record.headers, kept.record.timestamp_ms) == (
        poisoned.key,
        poisoned.value,
        poisoned.headers,
        poisoned.timestamp_ms,
    )
    with pytest.raises((DamagedRecordError, RejectedError)):
        release(quarantine_of(journal), kept.key, 2)
    assert quarantine_of(journal).discard(kept.key) == 1
    assert journal.seen() == [1]


def test_an_id_that_no_index_holds_parks_its_own_journal(new_replicating: NewReplicating) -> None:
    journal = new_replicating(2, LONG_ID)
    other = replace(journal.key, id="other")
    journal.append(1)
    journal.append(1, key=other)
    journal.flush()
    assert journal.seen(key=other) == [1]
    if not waiting(journal):  # Cassandra holds it
        assert journal.seen() == [1]
        return
    for _ in range(2):
        with pytest.raises(DamagedRecordError, match="offset 0 on are in quarantine"):
            journal.store.pointer(journal.key)
        journal.append(2)
        journal.flush()
    assert waiting(journal) == [0, 2, 3]
    with pytest.raises(RejectedError):
        release(quarantine_of(journal), journal.key, 2)
    journal.purge()
    journal.flush()
    assert (waiting(journal), journal.seen()) == ([], [])
