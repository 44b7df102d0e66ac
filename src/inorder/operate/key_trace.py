"""Where a key is held up, and what to do next: a pure reading of the hops.

A finding is something that a person may want to act on. A key without any has arrived: nothing of it waits in the
outbox, each table includes its newest record, and each journal is replicated as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at a hop, and the command that goes on from there."""

    hop: str
    sentence: str
    command: str


def findings(followed: Followed) -> list[Finding]:
    """All of them, in the direction of the flow."""
    found = [
        Finding(hop, f"It could not be looked at: {why}", "inorder doctor") for hop, why in followed.unseen.items()
    ]
    if followed.outbox is not None:
        found += _of_outbox(followed.outbox)
    for topic in followed.topics:
        found += _of_topic(topic)
    for table in followed.tables:
        found += _of_table(table, followed.topics)
    for journal in followed.journals:
        found += _of_journal(journal, followed.topics)
    return found


def summary(followed: Followed, found: Sequence[Finding]) -> str:
    """One sentence for people."""
    if found:
        return f"{followed.key!r} has not arrived everywhere: {_places(len(found))} to look at."
    if not any(topic.records for topic in followed.topics) and not _is_anywhere(followed):
        return f"{followed.key!r} is nowhere: no hop knows it."
    return f"{followed.key!r} has arrived: every hop has all that the one before it has."


def _is_anywhere(followed: Followed) -> bool:
    in_tables = any(table.version is not None for table in followed.tables)
    return in_tables or any(journal.offset is not None for journal in followed.journals)


def _of_outbox(hop: OutboxHop) -> Iterator[Finding]:
    for row in hop.exceeded:
        what = "is parked behind row" if row.parks else "has the exceeded row"
        yield Finding(
            "exceeded",
            f"The key {what} {row.id} of topic {row.topic!r}: {row.code}, {row.reason}",
            f"inorder exceeded show {row.id}",
        )
    if hop.rows:
        first = hop.first[0]
        since = f", the first since {first.written_at:%Y-%m-%d %H:%M:%S} UTC" if first.written_at else ""
        yield Finding("outbox", f"{_counted(hop.rows, 'row')} in {hop.table!r}{since}.", "inorder relay status")


def _of_topic(hop: TopicHop) -> Iterator[Finding]:
    if hop.undecided:
        yield Finding(
            "topic",
            f"In {hop.topic}[{hop.partition}] {_counted(hop.undecided, 'offset')} for a transaction that is open since"
            f" {hop.end_offset}; what is in it, or behind it, is not visible yet.",
            "inorder relay status",
        )


def _of_table(hop: TableHop, topics: tuple[TopicHop, ...]) -> Iterator[Finding]:
    for letter in hop.letters:
        yield Finding(
            "dead letters",
            f"{letter.id} was rejected by {hop.pipeline!r}: {letter.code}, {letter.detail}",
            f"inorder dead-letters show {letter.id}",
        )
    for topic in topics:
        due = hop.due.get((topic.topic, topic.partition))
        if due is not None and topic.last is not None and topic.last.offset >= due:
            yield Finding(
                "table",
                f"{hop.table!r} is behind: {topic.topic}[{topic.partition}] goes on at {due}, and the newest record of"
                f" the key is at {topic.last.offset}.",
                "inorder pipeline status",
            )


def _of_journal(hop: JournalHop, topics: tuple[TopicHop, ...]) -> Iterator[Finding]:
    if hop.parked is not None:
        command = f"inorder journal quarantine list --topic {hop.topic}"
        yield Finding("journal", f"The journal in {hop.topic!r} is parked: {hop.parked}", command)
        return
    for topic in topics:
        if topic.topic != hop.topic or topic.last is None:
            continue
        if topic.last.offset > max(_or_none_yet(hop.replicated), _or_none_yet(hop.offset)):
            behind = "nothing" if hop.replicated is None else f"offset {hop.replicated}"
            yield Finding(
                "journal",
                f"The store is behind: {topic.topic}[{topic.partition}] is replicated up to {behind}, and the last"
                f" record of the journal is at {topic.last.offset}. Reads are right meanwhile.",
                "inorder journal lag",
            )


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _or_none_yet(offset: int | None) -> int:
    return -1 if offset is None else offset


def _counted(count: int, what: str) -> str:
    return f"1 {what} waits" if count == 1 else f"{count:,} {what}s wait"


# What each hop knows of one key.
#
# Each hop is looked at once, one after the other in the direction of the flow, and nothing is locked or written. So a
# record that moves meanwhile may be seen at two hops; one that is there is never seen at none, because what leaves a
# hop is at the next one already, though perhaps in a transaction that the broker has not quite ended: that is told.


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row of the outbox that is not published yet, or not purged."""

    id: int
    topic: str
    written_at: datetime | None


@dataclass(frozen=True, slots=True)
class SetAside:
    """A row that used up its attempts."""

    id: int
    topic: str
    code: str
    reason: str
    parks: bool
    """Whether later rows of the key wait for it."""


@dataclass(frozen=True, slots=True)
class OutboxHop:
    """The key in the outbox: how many rows, the first of them, and what was set aside."""

    table: str
    rows: int = 0
    first: tuple[WaitingRow, ...] = ()
    exceeded: tuple[SetAside, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record of the key in its topic."""

    offset: int
    timestamp_ms: int | None
    bytes: int | None
    """How long its value is; None for a record without one, which deletes."""


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


@dataclass(frozen=True, slots=True)
class Followed:
    """A key at every hop."""

    key: str
    outbox: OutboxHop | None = None
    topics: tuple[TopicHop, ...] = ()
    tables: tuple[TableHop, ...] = ()
    journals: tuple[JournalHop, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Hops that could not be looked at, and why."""
