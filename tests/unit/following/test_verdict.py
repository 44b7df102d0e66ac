"""A key that has arrived is reported as such; one that is held up, with the place and the next command."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

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
    findings,
    summary,
)
from inorder.topics.pauses import Pause, PauseKind

WRITTEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOPIC = TopicHop("orders", 0, 1, 0, 9, 2, (Sighting(4, 1_000, 10), Sighting(7, 2_000, None)))
TABLE = TableHop("messages", "upsert:messages", {"id": 42}, (0, 7), due={("orders", 1): 8})
JOURNAL = JournalHop("journal", seq_nr=3, offset=5, replicated=8)
ACTIONS = TopicHop("journal", 0, 0, 0, 9, 1, (Sighting(5, 1_000, 10),))
ARRIVED = KeyTrace("42", OutboxHop("outbox"), (TOPIC, ACTIONS), (TABLE,), (JOURNAL,))
ROW = WaitingRow(17, "orders", WRITTEN)
PARKED = SetAsideRow(16, "orders", "too-large", "it has 2 MB", parks=True)


def told(followed: KeyTrace) -> list[tuple[str, str]]:
    return [(each.hop, each.command) for each in findings(followed)]


def test_a_key_that_every_hop_has_completely_has_arrived() -> None:
    assert findings(ARRIVED) == []
    assert summary(ARRIVED, []) == "'42' has arrived: every hop has all that the one before it has."


@pytest.mark.parametrize(
    "followed", [KeyTrace("7"), KeyTrace("7", OutboxHop("outbox"), (replace(TOPIC, records=0, newest=()),))]
)
def test_a_key_that_no_hop_knows_is_nowhere(followed: KeyTrace) -> None:
    assert findings(followed) == []
    assert summary(followed, []) == "'7' is nowhere: no hop knows it."


@pytest.mark.parametrize(
    ("followed", "hop", "command", "words"),
    [
        (
            replace(ARRIVED, outbox=OutboxHop("outbox", 1, (ROW,))),
            "outbox",
            "inorder relay status",
            "1 row waits in 'outbox', the first since 2026-01-02 03:04:05 UTC.",
        ),
        (
            replace(ARRIVED, outbox=OutboxHop("outbox", 1200, (replace(ROW, written_at=None),))),
            "outbox",
            "inorder relay status",
            "1,200 rows wait in 'outbox'.",
        ),
        (
            replace(ARRIVED, outbox=OutboxHop("outbox", exceeded=(PARKED,))),
            "exceeded",
            "inorder exceeded show 16",
            "The key is parked behind row 16 of topic 'orders': too-large, it has 2 MB",
        ),
        (
            replace(ARRIVED, outbox=OutboxHop("outbox", exceeded=(replace(PARKED, parks=False),))),
            "exceeded",
            "inorder exceeded show 16",
            "The key has the exceeded row 16 of topic 'orders': too-large, it has 2 MB",
        ),
        (
            replace(ARRIVED, topics=(replace(TOPIC, undecided=3), ACTIONS)),
            "topic",
            "inorder relay status",
            (
                "In orders[1] 3 offsets wait for a transaction that is open since 9; what is in it, or behind it, is"
                " not visible yet."
            ),
        ),
        (
            replace(ARRIVED, tables=(replace(TABLE, due={("orders", 1): 7}),)),
            "table",
            "inorder pipeline status",
            "'messages' is behind: orders[1] continues at 7, and the newest record of the key is at 7.",
        ),
        (
            replace(ARRIVED, tables=(replace(TABLE, letters=(Letter("orders:1:4", "wrong-type", "n is text"),)),)),
            "dead letters",
            "inorder dead-letters show orders:1:4",
            "orders:1:4 was rejected by 'upsert:messages': wrong-type, n is text",
        ),
        (
            replace(ARRIVED, journals=(replace(JOURNAL, parked="offset 4 cannot be read"),)),
            "journal",
            "inorder journal quarantine list --topic journal",
            "The journal in 'journal' is parked: offset 4 cannot be read",
        ),
        (
            replace(ARRIVED, journals=(JournalHop("journal"),)),
            "journal",
            "inorder journal lag",
            (
                "The store is behind: journal[0] is replicated up to nothing, and the last record of the journal is at"
                " 5. Reads are correct meanwhile."
            ),
        ),
        (
            replace(ARRIVED, unseen={"tables": "No answer."}),
            "tables",
            "inorder doctor",
            "It could not be read: No answer.",
        ),
    ],
)
def test_what_holds_a_key_up_is_named_with_the_next_command(
    followed: KeyTrace, hop: str, command: str, words: str
) -> None:
    [found] = findings(followed)
    assert (found.hop, found.command, found.sentence) == (hop, command, words)
    assert summary(followed, [found]) == "'42' has not arrived everywhere: 1 place to check."


def test_findings_come_in_the_direction_of_the_flow() -> None:
    held_up = KeyTrace(
        "42",
        OutboxHop("outbox", 2, (ROW,), (PARKED,)),
        (TOPIC, ACTIONS),
        (replace(TABLE, due={("orders", 1): 0}, letters=(Letter("orders:1:4", "x", "y"),)),),
        (replace(JOURNAL, replicated=4, offset=4),),
    )
    assert [each.hop for each in findings(held_up)] == ["exceeded", "outbox", "dead letters", "table", "journal"]
    assert summary(held_up, findings(held_up)).endswith("5 places to check.")


@pytest.mark.parametrize(
    ("offset", "replicated", "is_behind"),
    [(None, None, True), (None, 4, True), (None, 5, False), (5, 4, False), (5, None, False), (0, 0, True)],
)
def test_a_journal_is_behind_until_its_last_record_is_in_the_store(
    offset: int | None, replicated: int | None, is_behind: bool
) -> None:
    hop = JournalHop("journal", offset=offset, replicated=replicated)
    assert bool(findings(KeyTrace("42", topics=(ACTIONS,), journals=(hop,)))) == is_behind


def test_a_table_does_not_mind_records_of_topics_that_it_does_not_read() -> None:
    other = replace(TOPIC, topic="others", newest=(Sighting(99, 1, 1),))
    assert findings(replace(ARRIVED, topics=(TOPIC, other, ACTIONS))) == []


def test_a_key_that_is_only_a_row_or_a_journal_is_somewhere() -> None:
    for followed in (KeyTrace("42", tables=(TABLE,)), KeyTrace("42", journals=(JOURNAL,))):
        assert summary(followed, findings(followed)).startswith("'42' has arrived")


PASSED = NewestRecord("orders", 1, (0, 7), 9, "write")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (replace(TABLE, newest=PASSED), ""),
        (replace(TABLE, version=(0, 4), newest=PASSED), ""),  # an identical record leaves the version
        (replace(TABLE, version=(0, 8), newest=PASSED), "was dropped as stale: 'messages' has the version 8"),
        (replace(TABLE, version=(0, 9), newest=PASSED), ""),  # it may have come meanwhile
        (replace(TABLE, version=(1, 3), newest=PASSED), ""),
        (replace(TABLE, row=None, version=None, newest=PASSED), "The row is missing in 'messages'"),
        (replace(TABLE, row=None, version=(0, 4), is_deleted=True, newest=PASSED), "The row is missing in 'messages'"),
        (replace(TABLE, row=None, version=(0, 8), is_deleted=True, newest=PASSED), "was dropped as stale"),
        (replace(TABLE, row=None, version=None, mode="update", newest=PASSED), ""),
        (replace(TABLE, row=None, version=None, newest=replace(PASSED, effect="none")), ""),
        (replace(TABLE, newest=replace(PASSED, effect="delete"), version=(0, 4)), "is still there"),
        (replace(TABLE, row=None, is_deleted=True, newest=replace(PASSED, effect="delete")), ""),
        (replace(TABLE, newest=replace(PASSED, differs=("data",))), "differs from orders[1] at 7 in data"),
        (replace(TABLE, mode="insert", newest=replace(PASSED, differs=("data",))), ""),
    ],
)
def test_a_record_that_is_applied_has_arrived_only_where_the_row_shows_it(table: TableHop, words: str) -> None:
    found = findings(replace(ARRIVED, tables=(table,)))
    if words:
        assert [(each.hop, words in each.sentence) for each in found] == [("table", True)]
    else:
        assert found == []


def test_a_key_in_two_partitions_has_no_order() -> None:
    other = replace(TOPIC, partition=3)
    [found] = findings(replace(ARRIVED, topics=(TOPIC, other, ACTIONS)))
    assert (found.hop, "'orders' has records of the key in partitions 1, 3" in found.sentence) == ("topic", True)


def test_a_row_of_an_offset_that_its_partition_has_not_reached_came_from_another_one() -> None:
    [found] = findings(replace(ARRIVED, tables=(replace(TABLE, version=(0, 11), is_unordered=True),)))
    assert (found.hop, "is of offset 11" in found.sentence) == ("table", True)


BEHIND = replace(ARRIVED, tables=(replace(TABLE, due={("orders", 1): 7}),))
WAITS = replace(ARRIVED, outbox=OutboxHop("outbox", 1, (ROW,)))
IN_SHARD = replace(ARRIVED, outbox=OutboxHop("outbox", 1, (ROW,), shards={"orders": 3}))


@pytest.mark.parametrize(
    ("followed", "kind", "name", "command"),
    [
        (WAITS, PauseKind.TOPIC, "orders", "inorder resume topic orders"),
        (WAITS, PauseKind.KEY, "orders/4 2", "inorder resume key 'orders/4 2'"),
        (IN_SHARD, PauseKind.SHARD, "3", "inorder resume shard 3"),
        (BEHIND, PauseKind.TABLE, "messages", "inorder resume table messages"),
        (BEHIND, PauseKind.PIPELINE, "upsert", "inorder resume pipeline upsert"),
    ],
)
def test_a_pause_that_holds_the_key_up_is_named_with_who_why_since_when_and_what_ends_it(
    followed: KeyTrace, kind: PauseKind, name: str, command: str
) -> None:
    pause = Pause(kind, name, "an incident", "ann", "2026-01-02 03:04:05")
    [found] = [each for each in findings(replace(followed, paused=(pause,))) if each.hop == "paused"]
    assert found.command == command
    assert found.sentence == f"The {kind} {name!r} is paused: an incident (ann, 2026-01-02 03:04:05)."
    assert findings(replace(ARRIVED, paused=(pause,))) == [], "nothing of the key waits"


@pytest.mark.parametrize("outbox", [IN_SHARD.outbox, WAITS.outbox, OutboxHop("outbox", shards={"orders": 4}), None])
def test_a_pause_of_another_shard_holds_nothing_up(outbox: OutboxHop | None) -> None:
    pause = Pause(PauseKind.SHARD, "4", "an incident", "ann", "2026-01-02 03:04:05")
    found = findings(replace(ARRIVED, outbox=outbox, paused=(pause,)))
    assert "paused" not in [each.hop for each in found]
