"""Where a key is held up, and what to do next: a pure reading of the hops.

A finding is something that a person may want to act on. A key without any has arrived: nothing of it waits in the
outbox, each table includes its newest record, and each journal is replicated as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inorder.following.hops import Followed, JournalHop, OutboxHop, TableHop, TopicHop


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
