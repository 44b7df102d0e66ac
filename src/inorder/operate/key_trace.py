"""Where a key is held up, and which command comes next: pure decisions on what each hop has of it.

A finding is something that an operator may want to act on. A key without findings has arrived: nothing of it waits in
the outbox, each table shows what its newest record says, and each journal is replicated to its end. That a pipeline has
passed a record is not enough: it may have been dropped as stale, and a row can be changed or deleted in the table.

Each hop is read once, one after the other in the direction of the flow (`key_lookup`), and nothing is locked or
written. So a record that moves meanwhile may be seen at two hops. It is never seen at none: a record that leaves a hop
is at the next one already, though perhaps in a transaction that the broker has not quite ended, which is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any, Literal

from inorder.topics.pauses import Pause, PauseKind


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """What was found at a hop, and the command that comes next."""

    hop: str
    sentence: str
    command: str


@dataclass(frozen=True, slots=True)
class EventMark:
    """What is remarkable about an event; `key_timeline` describes the evidence."""

    kind: Literal["duplicate", "same content", "gap", "void"]
    sentence: str


def findings(trace: KeyTrace) -> list[KeyFinding]:
    """In the direction of the flow."""
    found = [KeyFinding(hop, f"It could not be read: {why}", "inorder doctor") for hop, why in trace.unseen.items()]
    found += _of_pauses(trace)
    if trace.outbox is not None:
        found += _of_outbox(trace.outbox)
    for topic in trace.topics:
        found += _of_topic(topic)
    found += _in_several_partitions(trace.topics)
    for table in trace.tables:
        found += _of_table(table, trace.topics)
    for journal in trace.journals:
        found += _of_journal(journal, trace.topics)
    return found


def summary(trace: KeyTrace, found: Sequence[KeyFinding]) -> str:
    if found:
        return f"{trace.key!r} has not arrived everywhere: {_places(len(found))} to check."
    if not is_known(trace):
        return f"{trace.key!r} is nowhere: no hop knows it."
    return f"{trace.key!r} has arrived: every hop has all that the one before it has."


def is_known(trace: KeyTrace) -> bool:
    """Whether any hop has, or had, something of the key."""
    in_outbox = trace.outbox is not None and (trace.outbox.rows or trace.outbox.exceeded)
    in_topics = any(topic.records for topic in trace.topics)
    in_tables = any(table.version is not None for table in trace.tables)
    return bool(in_outbox or in_topics or in_tables or any(journal.offset is not None for journal in trace.journals))


def _of_pauses(trace: KeyTrace) -> Iterator[KeyFinding]:
    """Pauses that something of the key waits for."""
    waiting = {row.topic for row in trace.outbox.first} if trace.outbox is not None else set()
    behind = [table for table in trace.tables if any(_behind(table, trace.topics))]
    for each in trace.paused:
        match each.kind:
            case PauseKind.TABLE | PauseKind.PIPELINE:
                holds = any(fills(each, table) for table in behind)
            case PauseKind.SHARD:
                shards = trace.outbox.shards if trace.outbox is not None else {}
                holds = any(str(shards.get(topic)) == each.name for topic in waiting)
            case _:
                holds = each.name.partition("/")[0] in waiting
        if holds:
            command = f"inorder resume {each.kind} {quote(each.name)}"
            yield KeyFinding("paused", f"The {each.kind} {each.name!r} is paused: {each}.", command)


def fills(pause: Pause, table: TableHop) -> bool:
    """Whether it is the pause of a table, or of the job that fills it."""
    names = {PauseKind.TABLE: table.table, PauseKind.PIPELINE: table.pipeline.partition(":")[0]}
    return names.get(pause.kind) == pause.name


def _of_outbox(hop: OutboxHop) -> Iterator[KeyFinding]:
    for row in hop.exceeded:
        what = "is parked behind row" if row.parks else "has the exceeded row"
        yield KeyFinding(
            "exceeded",
            f"The key {what} {row.id} of topic {row.topic!r}: {row.code}, {row.reason}",
            f"inorder exceeded show {row.id}",
        )
    if hop.rows:
        first = hop.first[0]
        since = f", the first since {first.written_at:%Y-%m-%d %H:%M:%S} UTC" if first.written_at else ""
        yield KeyFinding("outbox", f"{_counted(hop.rows, 'row')} in {hop.table!r}{since}.", "inorder relay status")


def _in_several_partitions(topics: Sequence[TopicHop]) -> Iterator[KeyFinding]:
    """Seen only where all partitions were read."""
    for topic in dict.fromkeys(hop.topic for hop in topics):
        numbers = [str(hop.partition) for hop in topics if hop.topic == topic and hop.records]
        if len(numbers) > 1:
            yield KeyFinding(
                "topic",
                f"{topic!r} has records of the key in partitions {', '.join(numbers)}: offsets of two partitions do"
                " not compare, so readers cannot order them. Some producer chooses another partition.",
                "inorder pipeline status",
            )


def _of_topic(hop: TopicHop) -> Iterator[KeyFinding]:
    if hop.undecided:
        yield KeyFinding(
            "topic",
            f"In {hop.topic}[{hop.partition}] {_counted(hop.undecided, 'offset')} for a transaction that is open since"
            f" {hop.end_offset}; what is in it, or behind it, is not visible yet.",
            "inorder relay status",
        )


def _of_table(hop: TableHop, topics: tuple[TopicHop, ...]) -> Iterator[KeyFinding]:
    if hop.is_unordered and hop.version is not None:
        yield KeyFinding(
            "table",
            f"The row in {hop.table!r} is of offset {hop.version[1]}, which the partition of the key has not reached:"
            " a record of another partition wrote it, so its records have no order.",
            "inorder key follow KEY --all-partitions",
        )
    for letter in hop.letters:
        yield KeyFinding(
            "dead letters",
            f"{letter.id} was rejected by {hop.pipeline!r}: {letter.code}, {letter.detail}",
            f"inorder dead-letters show {letter.id}",
        )
    if hop.newest is not None and not hop.letters and not hop.is_unordered:
        yield from _of_row(hop, hop.newest)
    for topic, due, newest in _behind(hop, topics):
        yield KeyFinding(
            "table",
            f"{hop.table!r} is behind: {topic.topic}[{topic.partition}] continues at {due}, and the newest record"
            f" of the key is at {newest.offset}.",
            "inorder pipeline status",
        )


def _behind(hop: TableHop, topics: Sequence[TopicHop]) -> Iterator[tuple[TopicHop, int, Sighting]]:
    """Partitions with records of the key that are not applied, the offset that is next, and the newest of them."""
    for topic in topics:
        due = hop.due.get((topic.topic, topic.partition))
        if due is not None and topic.last is not None and topic.last.offset >= due:
            yield topic, due, topic.last


def _of_row(hop: TableHop, newest: NewestRecord) -> Iterator[KeyFinding]:
    """Whether the row is what the newest record of the key, which the pipeline has passed, makes of it."""
    offset = newest.version[1]
    place = f"{newest.topic}[{newest.partition}] at {offset}"
    if hop.version is not None and hop.version > newest.version:
        if hop.has_dropped_newest:
            yield KeyFinding(
                "table",
                f"The newest record of the key, {place}, was dropped as stale: {hop.table!r} has the version"
                f" {hop.version[1]} for it, an offset at which {newest.topic!r} has no record of the key. The topic was"
                " created again, or a record of another partition wrote it.",
                "inorder key follow KEY --all-partitions",
            )
    elif newest.effect == "write" and hop.row is None and hop.mode != "update":
        yield KeyFinding(
            "table",
            f"The row is missing in {hop.table!r}, though {place} has been applied: it was deleted in the table. The"
            " next record of the key creates a row with the fields of that record only.",
            "inorder pipeline reset --help",
        )
    elif newest.effect == "delete" and hop.row is not None:
        yield KeyFinding(
            "table",
            f"The row in {hop.table!r} is still there, though {place} deletes it: it was written in the table.",
            "inorder pipeline reset --help",
        )
    elif newest.effect == "write" and newest.differs and hop.row is not None and hop.mode != "insert":
        yield KeyFinding(
            "table",
            f"The row in {hop.table!r} differs from {place} in {', '.join(newest.differs)}: it was changed in the"
            " table.",
            "inorder pipeline reset --help",
        )


def _of_journal(hop: JournalHop, topics: tuple[TopicHop, ...]) -> Iterator[KeyFinding]:
    if hop.parked is not None:
        command = f"inorder journal quarantine list --topic {hop.topic}"
        yield KeyFinding("journal", f"The journal in {hop.topic!r} is parked: {hop.parked}", command)
        return
    for topic in topics:
        if topic.topic != hop.topic or topic.last is None:
            continue
        if topic.last.offset > max(_or_none_yet(hop.replicated), _or_none_yet(hop.offset)):
            behind = "nothing" if hop.replicated is None else f"offset {hop.replicated}"
            yield KeyFinding(
                "journal",
                f"The store is behind: {topic.topic}[{topic.partition}] is replicated up to {behind}, and the last"
                f" record of the journal is at {topic.last.offset}. Reads are correct meanwhile.",
                "inorder journal lag",
            )


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _or_none_yet(offset: int | None) -> int:
    return -1 if offset is None else offset


def _counted(count: int, what: str) -> str:
    return f"1 {what} waits" if count == 1 else f"{count:,} {what}s wait"


# What each hop knows of one key.


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row of the outbox that is not published yet, or not purged."""

    id: int
    topic: str
    written_at: datetime | None


@dataclass(frozen=True, slots=True)
class SetAsideRow:
    """A row that used up its attempts."""

    id: int
    topic: str
    code: str
    reason: str
    parks: bool
    """Whether later rows of the key wait for it."""
    written_at: datetime | None = None
    exceeded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OutboxHop:
    """The key in the outbox: how many rows, the first of them, and those that are exceeded."""

    table: str
    rows: int = 0
    first: tuple[WaitingRow, ...] = ()
    exceeded: tuple[SetAsideRow, ...] = ()
    shards: Mapping[str, int] = field(default_factory=dict)
    """The shard of the relay that sends the key, by topic; empty for a strategy without shards."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record of the key in its topic."""

    offset: int
    timestamp_ms: int | None
    bytes: int | None
    """How long its value is; None for a record without one, which deletes."""
    outbox_id: str | None = None
    """What its header `relay.id_header` has."""
    action: str = ""
    """Of a record of a journal."""
    seq_nrs: tuple[int, int] | None = None
    """The first and the last number of an append to a journal."""
    marks: tuple[EventMark, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicHop:
    """The key in one partition of one Kafka topic."""

    topic: str
    generation: int
    partition: int
    first_offset: int
    end_offset: int
    """The partition's: behind its last committed record."""
    records: int = 0
    newest: tuple[Sighting, ...] = ()
    """The last few, oldest first."""
    undecided: int = 0
    """Offsets behind the end, of transactions that are still open or wait for one."""
    name: str = ""
    """The topic whose messages it carries, where that has another name."""
    page: tuple[Sighting, ...] | None = None
    """Earlier records, oldest first, where these were asked for."""
    older: int = 0
    """Records of the key before those that are shown."""

    @property
    def carried(self) -> str:
        """The topic whose messages it carries."""
        return self.name or self.topic

    @property
    def shown(self) -> tuple[Sighting, ...]:
        """The page that was asked for, or the newest records."""
        return self.newest if self.page is None else self.page

    @property
    def last(self) -> Sighting | None:
        """The newest record of the key; None where the topic has none."""
        return self.newest[-1] if self.newest else None


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the key that was rejected."""

    id: str
    code: str
    detail: str
    recorded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """The newest record of the key in the topic of a table, where the pipeline has passed it."""

    topic: str
    partition: int
    version: tuple[int, int]
    """Generation and offset."""
    end_offset: int
    """Where the search in the partition ended."""
    effect: Literal["write", "delete", "none"]
    """What the pipeline does with it; `none` for a record that it ignores or rejects."""
    differs: tuple[str, ...] = ()
    """Fields of the record that have another value in the row."""


@dataclass(frozen=True, slots=True)
class TableHop:
    """The key in a target table, and how far the pipeline that fills it has come."""

    table: str
    pipeline: str
    row: Mapping[str, Any] | None = None
    version: tuple[int, int] | None = None
    """Generation and offset of the record that the row shows; or of the one that deleted it."""
    is_deleted: bool = False
    due: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """For each partition of each Kafka topic of the key, the offset that is applied next."""
    letters: tuple[Letter, ...] = ()
    is_unordered: bool = False
    """Whether the version is of an offset that the partition of the key has not reached."""
    newest: NewestRecord | None = None
    mode: str = "upsert"
    generations: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The generation of each partition that the pipeline has a pointer for."""

    @property
    def has_dropped_newest(self) -> bool:
        """Whether the row has a later version than the newest record, which the pipeline has passed.

        A version behind the end that was read may be of a record that came meanwhile.
        """
        if self.version is None or self.newest is None or self.version <= self.newest.version:
            return False
        return self.version[0] == self.newest.version[0] and self.version[1] < self.newest.end_offset


@dataclass(frozen=True, slots=True)
class JournalHop:
    """A journal with the key as its id, in the store."""

    topic: str
    seq_nr: int | None = None
    delete_to: int | None = None
    offset: int | None = None
    """The last action of the journal that is in the store; None where the store has no such journal."""
    replicated: int | None = None
    """The partition's replicated offset."""
    parked: str | None = None
    """Why nothing more is replicated."""
    parked_at: int | None = None
    """The offset of the first record in quarantine."""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class KeyTrace:
    """A key at every hop."""

    key: str
    outbox: OutboxHop | None = None
    topics: tuple[TopicHop, ...] = ()
    tables: tuple[TableHop, ...] = ()
    journals: tuple[JournalHop, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Hops that could not be read, and why."""
    paused: tuple[Pause, ...] = ()
    """Pauses of the key, of a topic that has something of it, of its shard, and of a table that may have it."""
    written: Mapping[str, datetime | None] = field(default_factory=dict)
    """When rows were written whose records are shown and that are still in the outbox, by id."""
