"""Each kind of difference, introduced into a correct store, is found with its coordinates, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest

from inorder.journal.audit import compare as audit
from inorder.journal.audit.compare import JournalVerdict, Span, judge_unmentioned
from inorder.journal.audit.findings import (
    MAX_SHOWN,
    AuditFinding,
    FindingKind,
    StoredRow,
    StoredState,
    describe_event,
    describe_head,
)
from inorder.journal.audit.job import MAX_PASSES, AuditEntry, AuditTotals, JudgedJournal, judge, settle
from inorder.journal.replication.job import release
from inorder.journal.stores.ports import Expiry, JournalHead, LogRecord
from inorder.journal.stores.rows import EventColumns
from inorder.model.journal import Key, PartitionOffset
from tests.unit.journal.acting import TIME
from tests.unit.journal.audited import Audited
from tests.unit.journal.replicated_topic import TOPIC, key

Rows = list[StoredRow]


@pytest.fixture
def world() -> Audited:
    """Offsets 0 to 3: `a` has 1 to 6 in segments of 3, `b` began again, at offset 3."""
    world = Audited()
    world.topic.append("a", 1, 2, 3, 4, 5, 6)
    world.topic.append("b", 1, 2)
    world.topic.purge("b")
    world.topic.append("b", 1)
    world.flush(1, 1, 1, 1)
    return world


def head_of(world: Audited, id: str = "a") -> JournalHead:
    head = world.store.head(key(id))
    assert head is not None
    return head


def where(findings: list[AuditFinding]) -> list[tuple[str, str | None, int | None, int | None]]:
    return [(each.kind.value, each.id, each.seq_nr, each.offset) for each in findings]


def swapped(seq_nr: int, change: Callable[[StoredRow], StoredRow]) -> Callable[[Rows], Rows]:
    return lambda rows: sorted(
        (change(row) if row.seq_nr == seq_nr else row for row in rows), key=lambda row: (row.segment, row.seq_nr)
    )


def columns(**changed: Any) -> Callable[[StoredRow], StoredRow]:
    return lambda row: row._replace(columns=row.columns._replace(**changed))


class TestEvents:
    def test_a_store_that_is_right_has_no_finding(self, world: Audited) -> None:
        assert world.audit() == []
        assert world.totals == AuditTotals(journals=2, events=7)

    def test_a_missing_event(self, world: Audited) -> None:
        world.rows.changes[key("a")] = lambda rows: [row for row in rows if row.seq_nr != 4]
        assert where(world.audit()) == [("missing event", "a", 4, 0)]

    def test_a_surplus_event(self, world: Audited) -> None:
        world.topic.append("a", 9)
        world.flush()
        extra = columns(offset=3)

        def with_one_more(rows: Rows) -> Rows:
            return [*rows[:-1], extra(rows[-1])._replace(seq_nr=8), rows[-1]]

        world.rows.changes[key("a")] = with_one_more
        assert where(world.audit()) == [("surplus event", "a", 8, 3)]

    def test_an_event_that_is_there_twice(self, world: Audited) -> None:
        later = TIME + timedelta(days=1)
        world.rows.changes[key("a")] = lambda rows: [*rows, rows[-1]._replace(timestamp=later)]
        assert where(world.audit()) == [("surplus event", "a", 6, 0)]

    def test_an_event_of_a_life_that_was_purged(self, world: Audited) -> None:
        world.rows.changes[key("b")] = swapped(1, columns(offset=1))
        assert where(world.audit()) == [("event of another life", "b", 1, 3)]

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"payload_type": "text", "payload_txt": "x"}, "payload_type"),
            ({"tags": frozenset({"x"})}, "tags"),
            ({"metadata": '{"header":{"data":1}}'}, "metadata"),
            ({"metadata": "{"}, "metadata"),
            ({"headers": {"a": "b"}}, "headers"),
            ({"origin": None}, "origin"),
            ({"version": "2"}, "version"),
            ({"partition": 1}, "partition"),
            ({"offset": 3}, "offset"),
        ],
    )
    def test_a_different_event_names_its_columns(self, world: Audited, changed: dict[str, object], told: str) -> None:
        world.rows.changes[key("a")] = swapped(2, columns(**changed))
        (found,) = world.audit()
        assert where([found]) == [("different event", "a", 2, 0)]
        assert found.in_topic is not None
        assert found.in_store is not None
        assert found.in_topic.startswith(told)
        assert found.in_store.startswith(told)

    def test_a_different_time(self, world: Audited) -> None:
        world.rows.changes[key("a")] = swapped(2, lambda row: row._replace(timestamp=TIME + timedelta(seconds=1)))
        assert [each.in_store for each in world.audit()] == ["timestamp '2026-01-01 12:00:01+00:00'"]

    def test_an_event_in_the_wrong_segment(self, world: Audited) -> None:
        world.rows.changes[key("a")] = swapped(2, lambda row: row._replace(segment=1))
        (found,) = world.audit()
        assert (where([found]), found.in_store) == ([("different event", "a", 2, 0)], "it lies in segment 1")

    def test_another_spelling_is_no_difference(self, world: Audited) -> None:
        spelt = '{ "payload": {}, "header": {} }'
        world.rows.changes[key("a")] = lambda rows: [columns(metadata=spelt)(row) for row in rows]
        assert world.audit() == []

    def test_rows_that_no_reader_sees_are_a_note(self, world: Audited) -> None:
        orphan = UUID(int=5)
        world.rows.changes[key("a")] = lambda rows: [*rows, rows[-1]._replace(seq_nr=7, record_id=orphan)]
        world.topic.purge("b")
        world.flush()
        world.rows.changes[key("b")] = lambda _: list(world.rows.rows(key("a"), None))[:1]
        found = world.audit()
        assert [(each.kind, each.id, each.in_store) for each in found] == [
            (FindingKind.hidden_rows, "a", "1 rows that no reader sees"),
            (FindingKind.hidden_rows, "b", "1 rows that no reader sees"),
        ]
        assert world.totals.differences == 0

    def test_beyond_a_thousand_they_are_counted(self, world: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "MAX_FINDINGS", 2)
        world.rows.changes[key("a")] = lambda _: []
        found = world.audit()
        assert where(found[:2]) == [("missing event", "a", 1, 0), ("missing event", "a", 2, 0)]
        assert (found[2].kind, found[2].in_store) == (FindingKind.more, "4 more")


class TestHeads:
    @pytest.mark.parametrize(
        "changed",
        [
            {"seq_nr": 5},
            {"seq_nr": 7},
            {"delete_to": 2},
            {"expiry": Expiry(timedelta(days=1), date(2026, 1, 2))},
            {"partition_offset": PartitionOffset(0, 2)},
        ],
    )
    def test_a_wrong_head(self, world: Audited, changed: dict[str, object]) -> None:
        wrong = replace(head_of(world), **changed)  # type: ignore[arg-type]  # any field
        world.rows.heads[key("a")] = wrong
        (found,) = world.differences()
        assert (found.kind, found.id, found.in_topic) == (FindingKind.wrong_head, "a", "ends at 6, at 0:0")
        assert found.in_store == describe_head(wrong)

    def test_a_head_that_is_deleted_too_little_is_told_and_its_events_are_not(self, world: Audited) -> None:
        world.topic.delete("a", 4)
        world.flush()
        world.rows.heads[key("a")] = replace(head_of(world), delete_to=1)
        assert [each.kind for each in world.audit()] == [FindingKind.wrong_head]

    def test_a_missing_journal(self, world: Audited) -> None:
        world.rows.heads[key("a")] = None
        found = [each for each in world.audit() if each.kind.is_difference]
        assert where(found) == [("missing journal", "a", None, 0)]

    def test_a_journal_that_should_be_purged(self, world: Audited) -> None:
        kept = head_of(world, "b")
        world.topic.purge("b")
        world.flush()
        world.rows.heads[key("b")] = kept
        (found,) = world.audit()
        assert (where([found]), found.in_topic) == ([("surplus journal", "b", None, 3)], "purged at 4")

    def test_a_journal_that_the_topic_does_not_know(self) -> None:
        head = JournalHead(PartitionOffset(0, 5), 3, 2)
        spans = {0: Span(4, 9)}
        (found,) = judge_unmentioned(key("x"), StoredState(head), spans).findings
        assert where([found]) == [("surplus journal", "x", None, 5)]
        for offset, older in ((3, 1), (10, 0)):
            moved = replace(head, partition_offset=PartitionOffset(0, offset))
            assert judge_unmentioned(key("x"), StoredState(moved), spans) == JournalVerdict(older=older)
        waiting = frozenset({PartitionOffset(0, 5), PartitionOffset(0, 3)})
        (found,) = judge_unmentioned(key("x"), StoredState(None, waiting), spans).findings
        assert where([found]) == [(FindingKind.not_in_topic.value, "x", None, 5)]

    def test_the_name_of_a_life_may_be_another_replicators(self, world: Audited) -> None:
        named = UUID(int=9)
        world.rows.heads[key("a")] = replace(head_of(world), record_id=named)
        world.rows.changes[key("a")] = lambda rows: [row._replace(record_id=named) for row in rows]
        assert world.audit() == []

    def test_actions_that_change_nothing_need_not_be_in_the_heads_offset(self, world: Audited) -> None:
        world.topic.delete("a", 3)
        world.topic.delete("a", 2)
        world.flush()
        assert head_of(world).partition_offset.offset == 4
        assert world.audit() == []

    def test_the_day_of_a_fork_in_the_same_slice_is_as_good(self) -> None:
        world = Audited()
        world.topic.append("a", 1, expire_after=timedelta(days=1))
        world.topic.append("a", 1)
        world.topic.records[1] = replace(world.topic.records[1], timestamp_ms=1_767_600_000_000)
        world.flush()
        assert [each.kind for each in world.audit()] == [FindingKind.fork]


class TestQuarantine:
    def test_a_parked_journal_is_a_note(self, world: Audited) -> None:
        world.topic.damaged_header("a")
        world.topic.append("a", 7)
        world.flush()
        (found,) = world.audit()
        assert (where([found]), found.in_store) == ([("parked journal", "a", None, 4)], "2 records in quarantine")

    def test_a_damaged_record_that_was_given_up_is_told_for_as_long_as_the_topic_has_it(self, world: Audited) -> None:
        world.topic.damaged_header("a")
        world.topic.append("a", 7)
        world.flush()
        world.store.discard(key("a"), 4)
        release(world.store, key("a"), 3)
        assert where(world.audit()) == [("record not in quarantine", "a", None, 4)]
        world.topic.purge("a")
        world.flush()
        assert world.audit() == []

    def test_a_record_behind_a_damaged_one_must_wait_too(self, world: Audited) -> None:
        world.topic.damaged_events("a", 7)
        world.topic.append("a", 8)
        world.flush()
        world.store.discard(key("a"), 5)
        assert where(world.differences()) == [("record not in quarantine", "a", None, 5)]

    def test_a_quarantined_record_that_the_topic_does_not_have(self, world: Audited) -> None:
        world.topic.damaged_header("a")
        world.flush()
        world.topic.foreign()
        world.topic.records[4] = world.topic.records.pop()
        assert where(world.differences()) == [("quarantined record not in the topic", "a", None, 4)]

    def test_a_quarantined_record_that_a_purge_has_made_void(
        self, world: Audited, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.topic.damaged_header("a")
        world.flush()
        kept = world.rows.look(key("a"))
        world.topic.purge("a")
        world.flush()
        entries = [AuditEntry(key("a"), 0, _record(world, offset)) for offset in (0, 4, 5)]
        monkeypatch.setattr(world.rows, "look", lambda _: StoredState(None, kept.waiting))
        ((_, verdict),) = judge([entries], world.rows, {(TOPIC, 0): Span(0, 5)}, 3)
        assert [each.in_topic for each in verdict.findings] == ["a purge at 5 has made it void"]


def _record(world: Audited, offset: int) -> LogRecord:
    each = world.topic.records[offset]
    return LogRecord(offset, each.timestamp_ms, each.key, each.value, each.headers)


class TestLooks:
    def test_what_is_not_replicated_is_lag(self, world: Audited) -> None:
        world.topic.append("a", 7)
        world.topic.append("c", 1)
        assert world.audit() == []

    def test_a_journal_that_is_purged_meanwhile_is_no_difference(self, world: Audited) -> None:
        world.topic.purge("a")
        world.meanwhile = world.flush
        assert world.audit() == []

    def test_what_is_put_right_meanwhile_is_no_difference(self, world: Audited) -> None:
        world.rows.heads[key("a")] = None
        looks: list[None] = []

        def put_right() -> None:
            looks.append(None)
            if len(looks) == 2:
                world.rows.heads.clear()

        world.meanwhile = put_right
        assert world.audit() == []

    def test_a_journal_that_never_settles_is_a_note(self) -> None:
        seen: list[object] = []

        def look(suspects: object) -> list[JudgedJournal | AuditTotals]:
            seen.append(suspects)
            return [JudgedJournal(key("a"), JournalVerdict(is_settled=False)), AuditTotals(journals=3, events=4)]

        totals = AuditTotals()
        (found,) = settle(look, totals)
        assert (found.kind, found.id, len(seen)) == (FindingKind.unsettled, "a", MAX_PASSES)
        assert seen[:2] == [None, {key("a")}]
        assert totals.differences == 0

    def test_a_journal_in_two_partitions_is_compared_where_its_head_is(self, world: Audited) -> None:
        spans = {(TOPIC, 0): Span(0, 3), (TOPIC, 1): Span(0, 3)}
        entries = [
            AuditEntry(key("a"), 0, _record(world, 0)),
            AuditEntry(key("a"), 1, _record(world, 0)),
            AuditEntry(Key("b", TOPIC), -1, None),
        ]
        first, second = judge([entries], world.rows, spans, 3)
        assert [each.kind for each in first.verdict.findings] == [FindingKind.moved]
        assert first.verdict.events == 6
        assert [each.kind for each in second.verdict.findings] == [FindingKind.surplus_journal]


class TestRetention:
    def test_what_is_older_than_the_topic_is_counted(self, world: Audited) -> None:
        world.topic.append("a", 7)
        world.flush()
        world.first = 4
        assert world.audit() == []
        assert (world.totals.older, world.totals.events) == (7, 1)  # six events of a, and the journal b

    def test_a_head_must_fit_the_events_of_the_store(self, world: Audited) -> None:
        world.topic.append("a", 7)
        world.flush()
        world.first = 4
        world.rows.heads[key("a")] = replace(head_of(world), seq_nr=8)
        assert where(world.audit()) == [("wrong head", "a", 8, 4)]

    def test_what_the_topic_still_has_is_compared(self, world: Audited) -> None:
        world.topic.append("a", 7, 8)
        world.flush()
        world.first = 4
        world.rows.changes[key("a")] = lambda rows: [row for row in rows if row.seq_nr not in (2, 7)]
        assert where(world.audit()) == [("missing event", "a", 7, 4)]


def test_a_long_payload_is_shortened() -> None:
    found = describe_event(EventColumns(0, 7, None, None, frozenset(), "", "text", "x" * 1000, None, {}))
    assert found.startswith("at 0:7, payload 'xxx")
    assert len(found) < MAX_SHOWN + 30


def test_a_finding_survives_its_journey() -> None:
    finding = AuditFinding(FindingKind.wrong_head, TOPIC, "a", 0, 1, 2, "this", "that")
    assert AuditFinding.of(finding.as_dict()) == finding
