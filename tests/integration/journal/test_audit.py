"""Journals on real Kafka, replicated to both stores, then audited: nothing, and every hand-made difference.

Spark is left out here: it only brings the entries together, which a test can do in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy.engine import make_url

import inorder
from inorder.engines.partition_reader import KafkaSource
from inorder.journal.audit.compare import Span
from inorder.journal.audit.findings import AuditFinding, FindingKind
from inorder.journal.audit.job import AuditEntry, AuditTotals, JudgedJournal, judge, settle
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.segments import metajournal_segment
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.journal.stores.opening import StoredRows, open_journal_store
from inorder.journal.stores.ports import LogRecord
from inorder.kafka.admin import Cluster, ensure_topic
from inorder.model.journal import Event, Key
from inorder.model.partitioning import Place
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator
from tests.operating import journal_lag
from tests.selection import few

Change = Callable[[str], object]

LATE = f"USING TIMESTAMP {1 << 53}"
"""Later than any action, or Cassandra would keep what replicators wrote."""


@dataclass
class World:
    """A topic of two partitions, its journals, its store, and audits of both."""

    settings: inorder.Settings
    journals: inorder.Journals
    topic: str
    change: Change
    """Runs a statement on the store, with `{k}` for its keyspace: a modification behind the replicator's back."""
    eventually: Eventually
    totals: AuditTotals = field(default_factory=AuditTotals)
    _replicated: dict[Place, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.settings.journal.store_url(self.settings.database)

    def append(self, id: str, *seq_nrs: int, **options: Any) -> None:
        self.journals.journal(Key(id, self.topic)).append([Event(nr, {"n": nr}) for nr in seq_nrs], **options)

    def replicator(self) -> Replicator:
        return Replicator(dict(self.settings.kafka.properties), self.url, self.topic, segment_size=3)

    def replicate(self) -> None:
        with self.replicator():
            self.eventually(self.is_replicated, 60)

    def is_replicated(self) -> bool:
        return sum(row.behind for row in journal_lag(self.settings)) == 0

    def audit(self) -> list[AuditFinding]:
        self.totals, self._replicated = AuditTotals(), {}
        found = settle(self._look, self.totals)
        return sorted(found, key=lambda each: (each.kind, each.id or "", each.seq_nr or 0))

    def differences(self) -> list[AuditFinding]:
        return [each for each in self.audit() if each.kind.is_difference]

    def _look(self, suspects: Set[Key] | None) -> Iterator[JudgedJournal]:
        with closing(StoredRows(self.url)()) as rows:
            spans: dict[Place, Span] = {}
            for partition, extent in (Cluster(self.settings.kafka.properties).extents(self.topic) or {}).items():
                offset, place = rows.offset(self.topic, partition), (self.topic, partition)
                spans[place] = Span(extent.first, -1 if offset is None else offset, self._replicated.get(place))
                self._replicated[place] = spans[place].replicated
            entries = [AuditEntry(Key(id, self.topic), -1, None) for id in rows.ids(self.topic)]
            entries += [each for each in self._records(spans) if suspects is None or each.key in suspects]
            entries.sort(key=lambda each: (each.key, each.partition, each.record.offset if each.record else -1))
            yield from judge([entries], rows, spans, 3)

    def _records(self, spans: dict[Place, Span]) -> Iterator[AuditEntry]:
        ended: set[Place] = set()
        starts = {place: span.first for place, span in spans.items()}
        with closing(
            KafkaSource(self.settings.kafka.properties).open(starts, headers=True, reports_ends=True)
        ) as reader:
            while ended != set(spans):
                found = reader.read(1000, 1.0)
                ended |= found.ended
                for each in found.slices:
                    rows = zip(each.offsets, each.timestamps, each.keys, each.values, each.headers, strict=True)
                    for offset, micros, key, value, headers in rows:
                        record = LogRecord(offset, None if micros is None else micros // 1000, key, value, headers)
                        yield AuditEntry(Key((key or b"").decode(), self.topic), each.partition, record)


@pytest.fixture(params=few(["postgres", "cassandra"], "postgres"))
def world(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, eventually: Eventually) -> Iterator[World]:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    url, change, session = _store(request, unique)
    settings = inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        journal={"store": url, "topic_prefixes": [unique], "segment_size": 3},
    )
    with closing(open_journal_store(url)) as store:
        store.install()
    with closing(session), inorder.Journals(settings) as journals:
        yield World(settings, journals, unique, change, eventually)


def _store(request: pytest.FixtureRequest, unique: str) -> tuple[str, Change, Any]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        connection = psycopg.connect(conninfo, autocommit=True)
        return url, lambda statement: connection.execute(statement.replace("{k}.", "")), connection
    url = f"{request.getfixturevalue('cassandra').url}/audit{unique}"
    session = CassandraSession(url)
    return url, lambda statement: session.execute_ddl(statement.replace("{k}", session.keyspace)), session


def write(world: World) -> None:
    """Journals of all sorts of pasts."""
    for number in range(7):
        for first in (1, 4, 7):
            world.append(f"id{number}", first, first + 1, first + 2)
    world.journals.journal(Key("id6", world.topic)).delete(4)
    for id in ("id7", "gone"):
        world.append(id, 1, 2, 3)
        world.journals.journal(Key(id, world.topic)).purge()
    world.append("id7", 1, 2, expire_after=timedelta(days=1), metadata={"who": "me"}, headers={"a": "b"})
    producer = Producer({"bootstrap.servers": world.settings.kafka.properties["bootstrap.servers"]})
    for id in ("bad", "worse"):
        producer.produce(world.topic, b"?", id, partition=0, headers=[(ACTION_HEADER, b"{")])
    assert producer.flush(60) == 0


def event(world: World, id: str, seq_nr: int) -> str:
    """The condition for one row; Cassandra requires its whole key."""
    record = next(each for each in world.journals.journal(Key(id, world.topic)).read(seq_nr))
    when = record.timestamp.isoformat(timespec="milliseconds")
    segment = (seq_nr - 1) // 3
    place = f"topic = '{world.topic}' AND id = '{id}' AND segment = {segment} AND seq_nr = {seq_nr}"
    return f"WHERE {place} AND timestamp = '{when}'"


def head(world: World, id: str) -> str:
    return f"WHERE topic = '{world.topic}' AND segment = {metajournal_segment(id)} AND id = '{id}'"


def spoil(world: World) -> None:
    """One forbidden modification in each journal."""
    late = "" if world.url.startswith("postgres") else LATE
    topic = f"topic = '{world.topic}'"
    world.change(f"DELETE FROM {{k}}.journal {late} {event(world, 'id0', 5)}")
    world.change(f"UPDATE {{k}}.journal {late} SET payload_txt = '{{}}' {event(world, 'id1', 2)}")
    world.change(f"UPDATE {{k}}.metajournal {late} SET seq_nr = 8 {head(world, 'id2')}")
    world.change(f"DELETE FROM {{k}}.metajournal {late} {head(world, 'id3')}")
    world.change(f"UPDATE {{k}}.metajournal {late} SET delete_to = 3 {head(world, 'id6')}")
    world.change(f"DELETE FROM {{k}}.quarantine {late} WHERE {topic} AND id = 'bad'")
    world.change(
        'INSERT INTO {k}.metajournal (topic, segment, id, "partition", "offset", segment_size, seq_nr, created,'
        f" created_date, updated) VALUES ('{world.topic}', {metajournal_segment('never')}, 'never', 0, 1, 3, 4,"
        " '2026-01-01 00:00:00+0000', '2026-01-01', '2026-01-01 00:00:00+0000')"
    )


def test_a_replicated_store_has_no_difference_and_hand_made_ones_are_told_with_coordinates(world: World) -> None:
    write(world)
    world.replicate()
    assert [(each.kind, each.id) for each in world.audit()] == [
        (FindingKind.parked, "bad"),
        (FindingKind.parked, "worse"),
    ]
    assert world.totals == AuditTotals(journals=11, events=6 * 9 + 5 + 2, notes=2)
    spoil(world)
    found = world.differences()
    assert [(each.kind, each.id, each.seq_nr) for each in found] == [
        (FindingKind.different_event, "id1", 2),
        (FindingKind.missing_event, "id0", 5),
        (FindingKind.missing_journal, "id3", None),
        (FindingKind.not_in_quarantine, "bad", None),
        (FindingKind.surplus_journal, "never", None),
        (FindingKind.wrong_head, "id2", 8),
        (FindingKind.wrong_head, "id6", 9),
    ]
    assert all(each.partition is not None and each.offset is not None for each in found)
    assert (found[0].in_topic, found[0].in_store) == ("payload_txt '{\"n\":2}'", "payload_txt '{}'")
    assert world.totals.differences == len(found)


@pytest.mark.full
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_neither_a_running_replicator_nor_retention_makes_a_difference(world: World) -> None:
    write(world)
    over = threading.Event()

    def go_on() -> None:
        number = 10
        while not over.is_set():
            world.append("id1", number)
            world.append("short", 1, 2)
            world.journals.journal(Key("id6", world.topic)).delete(number)
            world.append("id6", number)
            world.journals.journal(Key("short", world.topic)).purge()
            number += 1

    with world.replicator(), ThreadPoolExecutor(1) as pool:
        writing = pool.submit(go_on)
        try:
            world.eventually(lambda: sum(row.replicated or 0 for row in journal_lag(world.settings)) > 50)
            assert world.differences() == []
        finally:
            over.set()
        writing.result(60)
        world.eventually(world.is_replicated, 60)
    admin = AdminClient({"bootstrap.servers": world.settings.kafka.properties["bootstrap.servers"]})
    for future in admin.delete_records([TopicPartition(world.topic, partition, 9) for partition in (0, 1)]).values():
        future.result(timeout=60)
    assert world.differences() == []
    assert world.totals.older > 0
    assert world.totals.events > 0


@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_the_steps_of_the_handbook_make_a_store_right_again(world: World) -> None:
    write(world)
    world.replicate()
    spoil(world)
    ids = tuple(each.id for each in world.differences())
    for table in ("journal", "metajournal"):
        world.change(f"DELETE FROM {table} WHERE topic = '{world.topic}' AND id IN {ids}")
    world.change(f"DELETE FROM pointer2 WHERE topic = '{world.topic}'")
    world.replicate()
    assert [each.kind for each in world.audit()] == [FindingKind.parked, FindingKind.parked]
    assert world.totals == AuditTotals(journals=11, events=6 * 9 + 5 + 2, notes=2)
