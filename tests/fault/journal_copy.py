"""Compares a topic with a store, journal by journal and row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from typing import Any, TypeAlias

import psycopg
from sqlalchemy.engine import make_url

from inorder.engines.slice_work import Slice
from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.replication.store_port import JournalReplica, Quarantined
from inorder.journal.stores.opening import JournalReplicas
from inorder.journal.stores.ports import EventualJournal, JournalHead
from inorder.journal.stores.postgres import PostgresJournal
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.kafka.readers import read_back
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import EventRecord, Key
from tests.fakes.replica import MemoryReplica
from tests.fault.journal_ordeal import SEGMENT_SIZE, JournalStage
from tests.fault.journal_writing import DAMAGED, WATCHED, shown

_TABLES = {
    "journal": "SELECT * FROM journal ORDER BY topic, id, segment, seq_nr",
    # All columns but `created`: it depends on the slice that began the journal.
    "metajournal": 'SELECT topic, segment, id, "partition", "offset", segment_size, seq_nr, delete_to, updated,'
    " created <= updated, expire_after, expire_on, record_id, origin, properties, metadata FROM metajournal"
    " ORDER BY topic, id",
    "pointer2": 'SELECT topic, "partition", "offset" FROM pointer2 ORDER BY topic, "partition"',
    "quarantine": 'SELECT topic, id, "partition", "offset", reason, key, value, headers, "timestamp" FROM quarantine'
    ' ORDER BY topic, id, "offset"',
}

Held: TypeAlias = tuple[JournalHead | str | None, list[EventRecord]]


def verify(stage: JournalStage) -> None:
    """Waits for replication to finish, then checks what readers saw and what the store holds."""
    stage.wait_for_all()
    verdict = stage.ledger.verdict()
    stage.history.append(f"{sum(map(len, stage.ledger.written.values()))} actions, {verdict.reads} reads")
    assert verdict.holds, verdict
    assert verdict.reads > len(WATCHED)
    model = MemoryReplica()
    replicate_one_by_one(stage, model)
    for id in (*WATCHED, DAMAGED):
        key = Key(id, stage.topic)
        found, wanted = held(stage.store, key), held(model, key)
        assert found == wanted, f"{id}: {_difference(found, wanted)}"
    for id in WATCHED:
        events = held(stage.store, Key(id, stage.topic))[1]
        assert shown(iter(events)) == stage.ledger.now(id)
    assert sorted(stage.store.ids(stage.topic)) == sorted(model.ids(stage.topic))
    with closing(JournalReplicas(stage.store_url)()) as replica:
        assert replica.offsets(stage.topic) == model.offsets(stage.topic)
        assert set(map(_parked, replica.quarantined(stage.topic))) == set(map(_parked, model.quarantined()))


def verify_rows(stage: JournalStage, fresh_url: str) -> None:
    """Compares all rows in PostgreSQL with those of a fresh database that was filled without faults."""
    with closing(PostgresJournal(fresh_url)) as store, closing(PostgresReplica(fresh_url)) as replica:
        store.install()
        replicate_one_by_one(stage, replica)
    for table in _TABLES:
        found, wanted = _rows(stage.store_url, table), _rows(fresh_url, table)
        assert found == wanted, (
            f"{table}: {[pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]][:2]}"
        )


def _difference(found: Held, wanted: Held) -> str:
    if found[0] != wanted[0]:
        return f"the head is {found[0]}, not {wanted[0]}"
    numbers = [[event.seq_nr for event in events] for _, events in (found, wanted)]
    if numbers[0] != numbers[1]:
        return f"the events are {numbers[0]}, not {numbers[1]}"
    return next(f"{one} is not {other}" for one, other in zip(found[1], wanted[1], strict=True) if one != other)


def held(store: EventualJournal, key: Key) -> Held:
    """A journal in the store: its head, and its visible events."""
    try:
        head = store.pointer(key)
    except DamagedRecordError as error:
        return str(error), []
    return head, [] if head is None else list(store.read(key, head, 1))


def replicate_one_by_one(stage: JournalStage, replica: JournalReplica) -> None:
    """Fills a store from the topic, one record at a time."""
    worker = ReplicateWorker(replica, SEGMENT_SIZE)
    for batch in _slices(stage):
        worker.apply(batch, expected=0)


def _slices(stage: JournalStage) -> Iterator[Slice]:
    records = sorted(read_back(stage.kafka, stage.topic), key=lambda record: (record.partition, record.offset))
    for (partition, offset), (record,) in groupby(records, lambda record: (record.partition, record.offset)):
        micros = record.timestamp_ms * 1000
        yield Slice(stage.topic, partition, [offset], [record.key], [record.value], [micros], [record.headers])


def _parked(each: Quarantined) -> tuple[Any, ...]:
    return each.key, each.partition, each.record.offset, each.reason, each.record.value


def _rows(url: str, table: str) -> list[Any]:
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo) as connection:
        return connection.execute(_TABLES[table]).fetchall()
