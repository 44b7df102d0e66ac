"""Looks a key up at every hop: outbox, topics, tables, journals. Nothing of the key is locked or changed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from inorder.database import sql
from inorder.database.database import Database, moment, written_at
from inorder.database.sql import quoted_table
from inorder.journal.stores.kafka_log import KafkaJournalLog
from inorder.journal.stores.opening import JournalStore
from inorder.journal.stores.ports import Window
from inorder.kafka.admin import Cluster
from inorder.model.deadline import Deadline
from inorder.model.errors import ConfigurationError, DamagedRecordError, InorderError, RejectedError
from inorder.model.journal import Key
from inorder.model.partitioning import Extent, Partitioner, partition_of, shard_of
from inorder.operate.key_timeline import KeyScan
from inorder.operate.key_trace import (
    JournalHop,
    KeyTrace,
    Letter,
    NewestRecord,
    OutboxHop,
    SetAsideRow,
    Sighting,
    TableHop,
    TopicHop,
    WaitingRow,
    fills,
)
from inorder.outbox import layouts
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
from inorder.pipeline.decoding import NO_RECORD_KEY, Decoder, RowDelete, RowUpdate
from inorder.pipeline.mapping import KeyReader, Refused, TableMapping, encode_key
from inorder.pipeline.stores.ports import NULL, RowKey, StoredLetter
from inorder.relay.parts import RelayParts
from inorder.relay.status import RelayAdmin
from inorder.topics.pauses import Pause, PauseKind, Pauses, SqlPauses
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations

T = TypeVar("T")

NEWEST = 50
"""Records of a partition that are shown; the others are counted, and come page by page."""
MOST_KEYLESS = 1_000
"""Dead letters without a Kafka key that are searched: only their values say which row they are of."""
SILENT_SECONDS = 30.0


class _Carrier(NamedTuple):
    """A Kafka topic that carries, or carried, the records of a topic."""

    topic: str
    name: str
    generation: int
    is_journal: bool


class Before(NamedTuple):
    """Where a page of older records ends: an offset of a partition."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Before:
        """From `TOPIC:PARTITION:OFFSET`, as the page before it names it."""
        topic, *numbers = text.rsplit(":", 2)
        if not topic or len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
            raise ConfigurationError(f"{text!r} is not a place in a topic.", hint="It is TOPIC:PARTITION:OFFSET.")
        return cls(topic, int(numbers[0]), int(numbers[1]))


@dataclass(frozen=True, slots=True)
class DatabaseHops:
    """What the lookup reads in the database of the outbox."""

    database: Database
    relay: RelayParts
    admin: RelayAdmin
    generations: SqlTopicGenerations
    pointers: SqlPointers
    letters: DeadLetterAdmin
    pauses: SqlPauses


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Looks a key up at every hop. The parts connect when they are first used."""

    stored: DatabaseHops | None
    """None where the settings have no database."""
    cluster: Cluster
    properties: Mapping[str, Any] = field(repr=False)
    """Of the Kafka client. Not shown, as they may hold a password."""
    partitioners: Mapping[str, Partitioner]
    mappings: Callable[[], list[TableMapping]]
    journal_topics: Callable[[], tuple[str, ...]]
    journal_store: Callable[[], JournalStore]
    id_header: str = ""
    """The header with the id of the outbox row; empty for none."""

    def trace(
        self, key: str, *, topic: str | None = None, everywhere: bool = False, before: Before | None = None
    ) -> KeyTrace:
        """What each hop knows of a key; a hop that cannot be read is listed in `unseen`.

        Topics are those of the tables, of the key's rows in the outbox, and of the journals; or `topic` alone. Records
        are looked for in the partition that the key belongs to, or `everywhere`. The newest records of a partition are
        shown; of one the last ones `before` an offset.
        """
        return _Tracing(self, key, topic, everywhere, before).trace()


class _Tracing:
    def __init__(self, parts: KeyLookup, key: str, topic: str | None, everywhere: bool, before: Before | None) -> None:
        self._parts = parts
        self._bytes = key_bytes(key)
        self._key = key_text(self._bytes)
        self._text = decoded(self._bytes)
        """The key where it is text, as ids of journals and names of pauses are."""
        self._topic = topic
        self._everywhere = everywhere
        self._before = before
        self._unseen: dict[str, str] = {}
        self._values: dict[tuple[str, int], bytes | None] = {}
        """Of the newest record of the key in each partition."""

    def trace(self) -> KeyTrace:
        stored = self._parts.stored
        outbox = self._read("outbox", lambda: self._outbox(stored)) if stored else None
        topics = self._read("topics", lambda: list(self._topics(outbox))) or []
        tables = (self._read("tables", lambda: list(self._tables(stored, topics))) if stored else None) or []
        journals = self._read("journals", lambda: list(self._journals(topics))) or []
        paused = (self._read("pauses", lambda: self._paused(stored, outbox, topics, tables)) if stored else None) or ()
        written = (self._read("outbox", lambda: self._written(stored, topics)) if stored else None) or {}
        known = {journal.topic for journal in journals}
        return KeyTrace(
            self._key,
            outbox,
            tuple(hop for hop, carrier in topics if hop.records or not carrier.is_journal or hop.topic in known),
            tuple(tables),
            tuple(journals),
            self._unseen,
            paused,
            written,
        )

    def _read(self, hop: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except InorderError as error:
            self._unseen[hop] = error.message
            return None

    def _outbox(self, stored: DatabaseHops) -> OutboxHop:
        relay = stored.relay.relay
        # Published rows are purged, but `polling` leaves them where they are.
        polls = relay.strategy == "polling"
        published = stored.relay.polling_store(stored.database).state().offset if polls else -1
        rows, first = waiting_rows(
            stored.database, relay.table, relay.layout, self._bytes, published, topic=self._topic
        )
        wanted = {"key": self._bytes} if self._topic is None else {"key": self._bytes, "topic": self._topic}
        exceeded = stored.admin.exceeded_rows(**wanted)
        aside = tuple(
            SetAsideRow(row.id, row.topic, row.code, row.reason, row.parks, row.created_at, row.exceeded_at)
            for row in exceeded
        )
        topics = {row.topic for row in first} | {row.topic for row in aside}
        if polls or relay.strategy == "topic-lock":
            return OutboxHop(relay.table, rows, first, aside)
        shards = {topic: shard_of(topic, self._bytes, 0, relay.shards) for topic in sorted(topics)}
        return OutboxHop(relay.table, rows, first, aside, shards)

    def _paused(
        self,
        stored: DatabaseHops,
        outbox: OutboxHop | None,
        topics: list[tuple[TopicHop, _Carrier]],
        tables: list[TableHop],
    ) -> tuple[Pause, ...]:
        known = {carrier.topic for hop, carrier in topics if hop.records}
        if outbox is not None:
            known |= {row.topic for row in outbox.first} | {row.topic for row in outbox.exceeded}
        shards = outbox.shards.values() if outbox is not None else ()
        return pauses_of(stored.pauses.read(), self._text, known, tables, shards)

    def _written(self, stored: DatabaseHops, topics: list[tuple[TopicHop, _Carrier]]) -> dict[str, datetime | None]:
        ids = {one.outbox_id for hop, carrier in topics if not carrier.is_journal for one in hop.shown}
        relay = stored.relay.relay
        return rows_written(stored.database, relay.table, relay.layout, self._bytes, ids)

    def _topics(self, outbox: OutboxHop | None) -> Iterator[tuple[TopicHop, _Carrier]]:
        cluster = self._parts.cluster
        with closing(KafkaJournalLog(self._parts.properties)) as log:
            for carrier in self._carriers(outbox):
                # Written ends first: what is committed in between counts as committed.
                count = cluster.partitions(carrier.name) or 0
                written = cluster.written_ends(carrier.name, count)
                extents = cluster.extents(carrier.name) or {}
                for partition in self._partitions(carrier, count):
                    hop = self._in_partition(log, carrier, partition, extents[partition])
                    yield replace(hop, undecided=max(0, written[partition] - hop.end_offset)), carrier

    def _carriers(self, outbox: OutboxHop | None) -> list[_Carrier]:
        journals = set(self._parts.journal_topics())
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
        states = self._parts.stored.generations.read_all() if self._parts.stored else ()
        return {state.topic: [(each.number, each.topic) for each in state.generations] for state in states}

    def _partitions(self, carrier: _Carrier, count: int) -> list[int]:
        if self._everywhere or not count:
            return list(range(count))
        chosen = Partitioner.MURMUR2 if carrier.is_journal else self._parts.partitioners.get(carrier.topic)
        return [partition_of(self._bytes, count, chosen or Partitioner.MURMUR2) or 0]

    def _in_partition(self, log: KafkaJournalLog, carrier: _Carrier, partition: int, extent: Extent) -> TopicHop:
        hop = TopicHop(carrier.name, carrier.generation, partition, extent.first, extent.end, name=carrier.topic)
        if extent.end <= extent.first:
            return hop
        window = Window(carrier.name, partition, extent.first, extent.end - 1)
        deadline = Deadline(time.monotonic, SILENT_SECONDS, f"Looking for {self._key!r} in {window}")
        scan = KeyScan(carrier.name, partition, carrier.is_journal, self._parts.id_header)
        before = self._before.offset if self._before and self._before[:2] == (carrier.name, partition) else None
        newest: deque[Sighting] = deque(maxlen=NEWEST)
        page: deque[Sighting] = deque(maxlen=NEWEST)
        count = earlier = 0
        with closing(log.records(window, self._bytes, deadline)) as records:
            for record in records:
                if (sighting := scan.sight(record)) is not None:
                    count += 1
                    newest.append(sighting)
                    self._values[carrier.name, partition] = record.value
                    if before is not None and record.offset < before:
                        earlier += 1
                        page.append(sighting)
        found = replace(hop, records=count, newest=tuple(newest), older=count - len(newest))
        return found if before is None else replace(found, page=tuple(page), older=earlier - len(page))

    def _mappings(self) -> list[TableMapping]:
        return [each for each in self._parts.mappings() if self._topic in (None, each.topic)]

    def _tables(self, stored: DatabaseHops, topics: list[tuple[TopicHop, _Carrier]]) -> Iterator[TableHop]:
        for mapping in self._mappings():
            if mapping.target:
                continue  # a Delta table is read by Spark only
            try:
                key = KeyReader(mapping).from_record(self._bytes)
            except Refused:
                continue  # no row of this table can have such a key
            due = {}
            for hop in (hop for hop, carrier in topics if carrier.topic == mapping.topic):
                applied = stored.pointers.of_topic(hop.topic).get(mapping.pipeline, {})
                due[hop.topic, hop.partition] = applied.get(hop.partition, 0)
            rejected = stored.letters.read(MOST, pipeline=mapping.pipeline, key=self._bytes)
            rejected += self._without_key(stored, mapping, key)
            letters = tuple(Letter(one.id, one.code, one.detail, one.recorded_at) for one in rejected)
            generations = _generations(stored.pointers, mapping)
            found = replace(
                table_row(stored.database, mapping, key),
                due=due,
                letters=letters,
                mode=mapping.mode,
                generations=generations,
            )
            newest = self._newest(found, mapping, [hop for hop, _ in topics], generations)
            yield replace(found, newest=newest, is_unordered=_is_unordered(found.version, due, generations))

    def _newest(
        self, found: TableHop, mapping: TableMapping, topics: list[TopicHop], generations: Mapping[tuple[str, int], int]
    ) -> NewestRecord | None:
        """The newest record of the key; None where the pipeline has not passed it, or its order is unknown."""
        seen = [
            ((generations[hop.topic, hop.partition], hop.last.offset), hop)
            for hop in topics
            if hop.last is not None and (hop.topic, hop.partition) in found.due.keys() & generations.keys()
        ]
        if not seen or len({hop.topic for _, hop in seen}) < len(seen):
            return None  # two partitions of one topic: their offsets do not compare
        version, hop = max(seen, key=lambda each: each[0])
        if version[1] >= found.due[hop.topic, hop.partition]:
            return None
        decided = Decoder(mapping).decode(self._bytes, self._values[hop.topic, hop.partition])
        record = NewestRecord(hop.topic, hop.partition, version, hop.end_offset, "none")
        if isinstance(decided, RowDelete):
            return replace(record, effect="delete")
        if not isinstance(decided, RowUpdate):
            return record
        return replace(record, effect="write", differs=_differences(mapping, decided, found.row))

    def _without_key(self, stored: DatabaseHops, mapping: TableMapping, key: RowKey) -> list[StoredLetter]:
        """Rejected records of the row that have no Kafka key, among the first `MOST_KEYLESS`."""
        found = stored.letters.read(MOST_KEYLESS, pipeline=mapping.pipeline, code=NO_RECORD_KEY)
        decoded = [(letter, Decoder(mapping).decode(None, letter.value)) for letter in found]
        return [letter for letter, one in decoded if isinstance(one, RowUpdate) and one.key == key][:MOST]

    def _journals(self, topics: list[tuple[TopicHop, _Carrier]]) -> Iterator[JournalHop]:
        hops = [hop for hop, carrier in topics if carrier.is_journal]
        if not hops or self._text is None:
            return
        store = self._parts.journal_store()
        for hop in hops:
            replicated = store.offset(hop.topic, hop.partition)
            found = JournalHop(hop.topic, replicated=replicated, partition=hop.partition)
            try:
                head = store.pointer(Key(self._text, hop.topic))
            except DamagedRecordError as error:
                yield replace(found, parked=error.message, parked_at=error.offset)
                continue
            if head is not None:
                at = head.partition_offset.offset
                yield replace(found, seq_nr=head.seq_nr, delete_to=head.delete_to, offset=at)
            elif hop.records:
                yield found


def _generations(pointers: SqlPointers, mapping: TableMapping) -> Mapping[tuple[str, int], int]:
    """The generation of each partition that the pipeline has a pointer for."""
    try:
        stored = pointers.of_pipeline(mapping.pipeline)
    except (ConfigurationError, RejectedError):
        return {}  # a table of version 0.1.0, which lacks columns
    return {(topic, number): one.generation for topic, number, one in stored}


def _differences(mapping: TableMapping, update: RowUpdate, row: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Fields that the record sets and that the row has with another value.

    Only types that every database returns in one form, and only where the column has such a type: a number, a time or a
    JSON document may come back in another form and still be the same.
    """
    if row is None:
        return ()
    return tuple(
        name
        for (name, kind), value in zip(mapping.fields, update.values, strict=True)
        if value is not None and kind in _COMPARED and _is_other(row[name], None if value is NULL else value)
    )


_COMPARED = frozenset({"boolean", "integer", "bigint", "text"})


def _is_other(stored: Any, written: Any) -> bool:
    if stored is None or written is None:
        return stored is not written
    if isinstance(stored, str) and isinstance(written, str):
        return stored.rstrip(" ") != written.rstrip(" ")  # a column of a fixed width adds blanks
    # Some databases store booleans as 0 and 1; a column of any other type is not compared.
    return isinstance(stored, int) and isinstance(written, int) and stored != written


def _is_unordered(
    version: tuple[int, int] | None,
    due: Mapping[tuple[str, int], int],
    generations: Mapping[tuple[str, int], int],
) -> bool:
    """Whether no partition that was looked at has reached the row's offset, in the generation of the row."""
    if version is None:
        return False
    reached = [offset for place, offset in due.items() if generations.get(place) == version[0]]
    return bool(reached) and all(offset <= version[1] for offset in reached)


_HEX = "hex:"


def key_bytes(text: str) -> bytes:
    """The key that a text means: its UTF-8, or what follows `hex:` where that is pairs of hexadecimal digits.

    >>> key_bytes("42"), key_bytes("hex:00ff"), key_bytes("hex:day")
    (b'42', b'\\x00\\xff', b'hex:day')
    """
    digits = text.removeprefix(_HEX)
    if digits == text or not digits or not digits.isascii() or not digits.isalnum():
        return text.encode()
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return text.encode()


def key_text(key: bytes) -> str:
    """The text that means a key: the key itself where it is UTF-8, and does not read as hexadecimal digits.

    >>> key_text(b"42"), key_text(b"\\xff"), key_text(b"hex:00")
    ('42', 'hex:ff', 'hex:6865783a3030')
    """
    text = decoded(key)
    return text if text is not None and key_bytes(text) == key else _HEX + key.hex()


def decoded(key: bytes) -> str | None:
    """The key as text; None where it is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def pauses_of(
    pauses: Pauses, key: str | None, topics: Collection[str], tables: Sequence[TableHop], shards: Collection[int] = ()
) -> tuple[Pause, ...]:
    """The pauses of a key, of its topics, of the shards that send it, and of its tables and their job."""
    names = {(PauseKind.TOPIC, topic) for topic in topics} | {(PauseKind.KEY, f"{topic}/{key}") for topic in topics}
    names |= {(PauseKind.SHARD, str(shard)) for shard in shards}
    return tuple(
        each for each in pauses.rows if (each.kind, each.name) in names or any(fills(each, table) for table in tables)
    )


# One key in the outbox and in a target table.

_STATEMENTS = sql.load("inorder.operate", "sql/key_hops.sql")

MOST = 20
"""Rows of the outbox that are shown; the others are counted."""


def waiting_rows(
    database: Database, table: str, layout: str, key: bytes, above: int = -1, *, topic: str | None = None
) -> tuple[int, tuple[WaitingRow, ...]]:
    """How many rows above an id have the key, in any topic or in one, and the first of them."""
    found = layouts.layout(layout, database.dialect)
    names = {
        "table": quoted_table(database.dialect, table),
        "id": found.id,
        "topic": found.topic,
        "written_at": found.written_at,
    }
    bound: dict[str, Any] = {"key": key, "above": above}
    names["wanted"] = f"{found.key} = %(key)s"
    if topic is not None:
        bound["topic"] = topic
        names["wanted"] += f" AND {found.topic} = %(topic)s"
    with_most = _STATEMENTS.render("rows_of_key", **names, most=str(MOST))
    first = [WaitingRow(id, topic, written_at(at)) for id, topic, at in database.execute(with_most, bound).rows]
    counting = _STATEMENTS.render("count_of_key", **{name: names[name] for name in ("table", "id", "wanted")})
    return int(database.execute(counting, bound).rows[0][0]), tuple(first)


def rows_written(
    database: Database, table: str, layout: str, key: bytes, ids: Collection[str | None]
) -> dict[str, datetime | None]:
    """Which rows of the key are in the outbox of these, by id, and when they were written.

    An id that is no number of ours was chosen by the writer of a row.
    """
    numbers = [int(id) for id in ids if id is not None and id.isascii() and id.isdigit() and len(id) < _DIGITS]
    if not numbers:
        return {}
    found = layouts.layout(layout, database.dialect)
    bound = {f"id_{place}": number for place, number in enumerate(numbers)}
    statement = _STATEMENTS.render(
        "written_of_ids",
        table=quoted_table(database.dialect, table),
        id=found.id,
        written_at=found.written_at,
        wanted=f"{found.key} = %(key)s",
        ids=", ".join(f"%({name})s" for name in bound),
    )
    return {str(id): written_at(at) for id, at in database.execute(statement, {"key": key, **bound}).rows}


_DIGITS = 19
"""A number of fewer digits fits into a bigint."""


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
