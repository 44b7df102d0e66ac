"""A key at every hop, looked up: outbox, topics, tables, journals. Nothing of the key is locked or changed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, TypeVar

from inorder.database import sql
from inorder.database.database import Database, moment, open_database, written_at
from inorder.database.sql import quoted_table
from inorder.journal.action import Mark
from inorder.journal.codec import action_of
from inorder.journal.jobs import journal_topics
from inorder.journal.service import journal_store
from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.journal.stores.ports import LogRecord, Window
from inorder.kafka.admin import Cluster, Extent
from inorder.model.deadline import Deadline
from inorder.model.errors import DamagedRecordError, InorderError
from inorder.model.journal import Key
from inorder.model.partitioning import Partitioner, partition_of
from inorder.operate.key_trace import (
    Followed,
    JournalHop,
    Letter,
    OutboxHop,
    SetAside,
    Sighting,
    TableHop,
    TopicHop,
    WaitingRow,
)
from inorder.outbox import layouts
from inorder.pipeline.dead_letters_admin import list_dead_letters
from inorder.pipeline.job import table_mappings
from inorder.pipeline.mapping import KeyReader, Refused, TableMapping, encode_key
from inorder.pipeline.stores.ports import RowKey
from inorder.relay.status import exceeded_rows
from inorder.relay.stores.opening import polling_store
from inorder.settings import Settings
from inorder.topics.stores.generations import SqlPointers, open_generations

T = TypeVar("T")

NEWEST = 10
"""Records of a topic that are shown; the others are counted."""
SILENT_SECONDS = 30.0
NAME = "inorder key"


class _Carrier(NamedTuple):
    """A Kafka topic that carries, or carried, the records of a topic."""

    topic: str
    name: str
    generation: int
    is_journal: bool


def follow_key(settings: Settings, key: str, *, topic: str | None = None, everywhere: bool = False) -> Followed:
    """What each hop knows of a key; one that cannot be looked at is told as unseen.

    Topics are those of the tables, of the key's rows in the outbox, and of the journals; or `topic` alone. Records are
    looked for in the partition that the key belongs to, or `everywhere`.
    """
    return _Looking(settings, key, topic, everywhere).followed()


class _Looking:
    def __init__(self, settings: Settings, key: str, topic: str | None, everywhere: bool) -> None:
        self._settings = settings
        self._key = key
        self._bytes = key.encode()
        self._topic = topic
        self._everywhere = everywhere
        self._unseen: dict[str, str] = {}

    def followed(self) -> Followed:
        outbox = self._seen("outbox", self._outbox) if self._settings.database.url else None
        topics = self._seen("topics", lambda: list(self._topics(outbox))) or []
        tables = self._seen("tables", lambda: list(self._tables(topics))) or []
        journals = self._seen("journals", lambda: list(self._journals(topics))) or []
        known = {journal.topic for journal in journals}
        return Followed(
            self._key,
            outbox,
            tuple(hop for hop, carrier in topics if hop.records or not carrier.is_journal or hop.topic in known),
            tuple(tables),
            tuple(journals),
            self._unseen,
        )

    def _seen(self, hop: str, look: Callable[[], T]) -> T | None:
        try:
            return look()
        except InorderError as error:
            self._unseen[hop] = error.message
            return None

    def _outbox(self) -> OutboxHop:
        relay = self._settings.relay
        with closing(open_database(self._settings.database.require_url(), NAME)) as database:
            rows, first = waiting_rows(database, relay.table, relay.layout, self._bytes, self._published_up_to())
        wanted = {"key": self._bytes} if self._topic is None else {"key": self._bytes, "topic": self._topic}
        exceeded = exceeded_rows(self._settings, **wanted)
        aside = tuple(SetAside(row.id, row.topic, row.code, row.reason, row.parks) for row in exceeded)
        return OutboxHop(relay.table, rows, first, aside)

    def _published_up_to(self) -> int:
        """Below the first id, but with `polling`, which leaves published rows where they are."""
        if self._settings.relay.strategy != "polling":
            return -1
        with closing(polling_store(self._settings, NAME)) as store:
            return store.state().offset

    def _topics(self, outbox: OutboxHop | None) -> Iterator[tuple[TopicHop, _Carrier]]:
        cluster = Cluster(self._settings.kafka.properties)
        with closing(KafkaJournalLog(self._settings.kafka.properties)) as log:
            for carrier in self._carriers(outbox):
                # Written ends first: what is committed in between counts as committed.
                count = cluster.partitions(carrier.name) or 0
                written = cluster.written_ends(carrier.name, count)
                extents = cluster.extents(carrier.name) or {}
                for partition in self._partitions(carrier, count):
                    hop = self._in_partition(log, carrier, partition, extents[partition])
                    yield replace(hop, undecided=max(0, written[partition] - hop.end_offset)), carrier

    def _carriers(self, outbox: OutboxHop | None) -> list[_Carrier]:
        journals = set(journal_topics(self._settings))
        named = {mapping.topic for mapping in self._mappings()} | journals
        if outbox is not None:
            named |= {row.topic for row in outbox.first} | {row.topic for row in outbox.exceeded}
        wanted = sorted(named) if self._topic is None else [self._topic]
        switched = self._switched()
        return [
            _Carrier(topic, name, number, topic in journals)
            for topic in wanted
            for number, name in switched.get(topic, [(0, topic)])
        ]

    def _switched(self) -> dict[str, list[tuple[int, str]]]:
        """The Kafka topics of every topic that was ever switched, by generation."""
        if not self._settings.database.url:
            return {}
        with closing(open_generations(self._settings)) as generations:
            states = generations.read_all()
        return {state.topic: [(each.number, each.topic) for each in state.generations] for state in states}

    def _partitions(self, carrier: _Carrier, count: int) -> list[int]:
        if self._everywhere or not count:
            return list(range(count))
        rule = (
            Partitioner.MURMUR2 if carrier.is_journal else Partitioner(self._settings.topic(carrier.topic).partitioner)
        )
        return [partition_of(self._bytes, count, rule) or 0]

    def _in_partition(self, log: KafkaJournalLog, carrier: _Carrier, partition: int, extent: Extent) -> TopicHop:
        hop = TopicHop(carrier.name, carrier.generation, partition, extent.first, extent.end)
        if extent.end <= extent.first:
            return hop
        window = Window(carrier.name, partition, extent.first, extent.end - 1)
        deadline = Deadline(time.monotonic, SILENT_SECONDS, f"Looking for {self._key!r} in {window}")
        newest: deque[Sighting] = deque(maxlen=NEWEST)
        count = 0
        with closing(log.records(window, self._bytes, deadline)) as records:
            for record in records:
                if not (carrier.is_journal and _is_mark(record, window)):
                    count += 1
                    size = None if record.value is None else len(record.value)
                    newest.append(Sighting(record.offset, record.timestamp_ms, size))
        return replace(hop, records=count, newest=tuple(newest))

    def _mappings(self) -> list[TableMapping]:
        return [each for each in table_mappings(self._settings) if self._topic in (None, each.topic)]

    def _tables(self, topics: list[tuple[TopicHop, _Carrier]]) -> Iterator[TableHop]:
        if not self._settings.database.url:
            return
        with closing(open_database(self._settings.database.require_url(), NAME)) as database:
            pointers = SqlPointers(database)
            for mapping in self._mappings():
                try:
                    key = KeyReader(mapping).from_record(self._bytes)
                except Refused:
                    continue  # no row of this table can have such a key
                hops = [hop for hop, carrier in topics if carrier.topic == mapping.topic]
                due = {
                    (hop.topic, hop.partition): pointers.of_topic(hop.topic)
                    .get(mapping.pipeline, {})
                    .get(hop.partition, 0)
                    for hop in hops
                }
                yield replace(table_row(database, mapping, key), due=due, letters=self._letters(mapping))

    def _letters(self, mapping: TableMapping) -> tuple[Letter, ...]:
        found = list_dead_letters(self._settings, MOST, pipeline=mapping.pipeline, key=self._bytes)
        return tuple(Letter(letter.id, letter.code, letter.detail) for letter in found)

    def _journals(self, topics: list[tuple[TopicHop, _Carrier]]) -> Iterator[JournalHop]:
        looked_at = [hop for hop, carrier in topics if carrier.is_journal]
        if not looked_at:
            return
        with closing(journal_store(self._settings)) as store:
            for hop in looked_at:
                found = JournalHop(hop.topic, replicated=store.offset(hop.topic, hop.partition))
                try:
                    head = store.pointer(Key(self._key, hop.topic))
                except DamagedRecordError as error:
                    yield replace(found, parked=error.message)
                    continue
                if head is not None:
                    at = head.partition_offset.offset
                    yield replace(found, seq_nr=head.seq_nr, delete_to=head.delete_to, offset=at)
                elif hop.records:
                    yield found


def _due(by_pipeline: Mapping[str, Mapping[int, int]], mapping: TableMapping, hop: TopicHop) -> int:
    return by_pipeline.get(mapping.pipeline, {}).get(hop.partition, 0)


def _is_mark(record: LogRecord, window: Window) -> bool:
    try:
        return isinstance(action_of(record, window.topic, window.partition), Mark)
    except DamagedRecordError:
        return False


# One key in the outbox and in a target table, for people who look for it.

_STATEMENTS = sql.load("inorder.operate", "sql/key_hops.sql")

MOST = 20
"""Rows of the outbox that are shown; the others are counted."""


def waiting_rows(
    database: Database, table: str, layout: str, key: bytes, above: int = -1
) -> tuple[int, tuple[WaitingRow, ...]]:
    """How many rows above an id have the key, and the first of them."""
    found = layouts.layout(layout, database.dialect)
    names = {
        "table": quoted_table(database.dialect, table),
        "id": found.id,
        "topic": found.topic,
        "key": found.key,
        "written_at": found.written_at,
    }
    bound = {"key": key, "above": above}
    with_most = _STATEMENTS.render("rows_of_key", **names, most=str(MOST))
    first = [WaitingRow(id, topic, written_at(at)) for id, topic, at in database.execute(with_most, bound).rows]
    counting = _STATEMENTS.render("count_of_key", **{name: names[name] for name in ("table", "id", "key")})
    return int(database.execute(counting, bound).rows[0][0]), tuple(first)


def table_row(database: Database, mapping: TableMapping, key: RowKey) -> TableHop:
    """The row of a key with its version, or the tombstone that it left."""
    quoted = {name: quoted_table(database.dialect, name) for name in (*mapping.key_names, *mapping.columns)}
    parts = key if isinstance(key, tuple) else (key,)
    bound = {f"key_{number}": part for number, part in enumerate(parts)}
    same_key = " AND ".join(f"{quoted[name]} = %(key_{number})s" for number, name in enumerate(mapping.key_names))
    table = quoted_table(database.dialect, mapping.table)
    statement = _STATEMENTS.render("row_of_key", table=table, columns=", ".join(quoted.values()), same_key=same_key)
    rows = database.execute(statement, bound).rows
    if not rows:
        return _deleted(database, mapping, encode_key(key))
    *values, generation, offset, updated_at = rows[0]
    row = {**dict(zip(quoted, values, strict=True)), "updated_at": moment(updated_at)}
    return TableHop(mapping.table, mapping.pipeline, row, (generation, offset))


def _deleted(database: Database, mapping: TableMapping, key: bytes) -> TableHop:
    statement = _STATEMENTS.render("tombstone_of_key", key=quoted_table(database.dialect, "key"))
    rows = database.execute(statement, {"pipeline": mapping.pipeline, "key": key}).rows
    version = (rows[0][0], rows[0][1]) if rows else None
    return TableHop(mapping.table, mapping.pipeline, version=version, is_deleted=version is not None)
