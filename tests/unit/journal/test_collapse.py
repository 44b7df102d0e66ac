"""Records of one journal become fewer writes with the same result."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.replication.transition import (
    ActionRecord,
    Collapsed,
    CollapsedAppends,
    CollapsedDelete,
    CollapsedPurge,
    InsertEvents,
    append,
    collapse,
    delete,
    purge,
)
from inorder.journal.stores.ports import JournalHead
from tests.selection import examples
from tests.unit.journal.acting import LIFE, appended, at, record

_RECORD = re.compile(r"(?P<kind>[ADPM])(?P<offset>\d+)(?:[:>](?P<first>\d+)(?:-(?P<last>\d+))?)?")


def action(kind: str, first: int, last: int = 0) -> Action:
    match kind:
        case "A":
            return appended(first, last)
        case "D":
            return Delete(first)
        case "P":
            return Purge()
    return Mark("x")


def records(text: str) -> list[ActionRecord[None]]:
    """`A0:1-2` is an append, `D1>1` a delete, `P2` a purge, `M3` a mark; the first number is the offset."""
    found = []
    for part in text.split():
        match = _RECORD.fullmatch(part)
        assert match is not None, part
        first, last = int(match["first"] or 0), int(match["last"] or match["first"] or 0)
        found.append(ActionRecord(int(match["offset"]), action(match["kind"], first, last), None))
    return found


def render(batch: Collapsed[None]) -> str:
    match batch:
        case CollapsedAppends():
            return f"A{batch.offset}[{','.join(str(record.offset) for record in batch.records)}]"
        case CollapsedDelete():
            return f"D{batch.offset}>{batch.action.to}"
        case CollapsedPurge():
            return f"P{batch.offset}"


@pytest.mark.parametrize(
    ("log", "batches"),
    [
        ("", ""),
        ("M0 M1", ""),
        ("A0:1", "A0[0]"),
        ("A0:1 A1:2", "A1[0,1]"),
        ("M0 A1:1 M2 A3:2 M4", "A3[1,3]"),
        ("D1>1 A2:2", "D1>1 A2[2]"),
        ("A1:2 D2>1", "A1[1] D2>1"),
        ("A1:1-3 D2>1", "A1[1] D2>1"),
        ("A1:1 D2>1 A3:2", "A1[1] D2>1 A3[3]"),
        ("A1:1 D2>1 A3:2 D4>2", "A3[3] D4>2"),
        ("A1:1 A2:2 D3>1 D4>2", "A2[2] D4>2"),
        ("D2>1 D3>2", "D3>2"),
        ("D2>2 D3>1", "D2>2"),
        ("D1>10 D2>6", "D1>10"),
        ("A0:1 D1>1 A2:2 D3>2 A4:3", "A2[2] D3>2 A4[4]"),
        ("A0:1 A1:2 D2>1 A3:3 D4>3 A5:4", "A3[3] D4>3 A5[5]"),
        ("A0:1 A1:2 A2:3 D3>1 A4:4 A5:5 D6>2 A7:6", "A5[2,4,5] D6>2 A7[7]"),
        ("A0:1-2 A1:3-4 A2:5 D3>1 A4:6 A5:7 D6>3 A7:8", "A5[1,2,4,5] D6>3 A7[7]"),
        ("A0:1-4 A1:5-6 D2>3", "A1[0,1] D2>3"),
        ("A0:1-6 D1>3 D2>6", "A0[0] D2>6"),
        ("A0:1 P1", "P1"),
        ("D0>1 P1", "P1"),
        ("P0 A1:1", "P0 A1[1]"),
        ("P0 D1>1", "P0 D1>1"),
        ("P0 M1 P2", "P2"),
        ("A0:1 D1>1 P2 A3:1", "P2 A3[3]"),
        ("A0:574 A1:575 M2 D3>575", "A1[1] D3>575"),
        # 12 is a fork: the delete reaches to 13, though there is more behind it, and so 13 must be known.
        ("A0:13 A1:12 D2>14 A3:12-14 A4:16", "A1[0,1] D2>14 A4[3,4]"),
        ("A0:13 D1>1 A2:12 D3>14 A4:14", "A2[0,2] D3>14 A4[4]"),
    ],
)
def test_records_collapse(log: str, batches: str) -> None:
    assert " ".join(render(batch) for batch in collapse(records(log))) == batches


def carried_out(batches: list[Collapsed[None]]) -> tuple[JournalHead | None, set[int]]:
    head: JournalHead | None = None
    visible: set[int] = set()
    for batch in batches:
        match batch:
            case CollapsedAppends():
                actions = [(each.offset, each.action) for each in batch.records]
                events = [
                    record(seq_nr, offset)
                    for offset, each in actions
                    if isinstance(each, Append)
                    for seq_nr in each.range
                ]
                change = append(head, at(batch.offset), events, segment_size=10, record_id=LIFE)
                inserts = [each for each in change.statements if isinstance(each, InsertEvents)]
                head, visible = change.head, visible | {event.seq_nr for each in inserts for event in each.events}
            case CollapsedDelete():
                head = delete(head, at(batch.offset), batch.action.to, segment_size=10, origin=None).head
            case CollapsedPurge():
                head, visible = purge(head, at(batch.offset)).head, set()
        if head is not None:
            visible = {seq_nr for seq_nr in visible if seq_nr > (head.delete_to or 0)}
    return head, visible


def check_same_journal(log: list[ActionRecord[None]]) -> None:
    single = [batch for acted in log for batch in collapse([acted])]
    head, visible = carried_out(single)
    collapsed_head, collapsed_visible = carried_out(collapse(log))
    assert collapsed_visible == visible
    assert (head is None) == (collapsed_head is None)
    if head is not None and collapsed_head is not None:
        # Where the first append of a life is left out, delete_to may reach further, over numbers that are not there.
        assert (collapsed_head.delete_to or 0) >= (head.delete_to or 0)
        assert replace(collapsed_head, partition_offset=head.partition_offset, delete_to=head.delete_to) == head


def test_every_short_log_leads_to_the_same_journal() -> None:
    for kinds in product(["A{}:1", "A{}:2", "A{}:3", "A{}:2-3", "D{}>1", "D{}>3", "P{}"], repeat=4):
        check_same_journal(records(" ".join(kind.format(offset) for offset, kind in enumerate(kinds))))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("A"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["fork 0", "fork 2", "fork 4"]), st.integers(0, 3)),
        st.tuples(st.just("D"), st.integers(1, 20)),
        st.tuples(st.just("P"), st.just(0)),
        st.tuples(st.just("M"), st.just(0)),
    ),
    max_size=12,
)


@examples(200)
@given(steps)
def test_what_is_collapsed_leads_to_the_same_journal(chosen: list[tuple[str, int]]) -> None:
    log, end = [], 0
    for offset, (kind, number) in enumerate(chosen):
        if kind[0] in "Af":
            # A fork begins at or below where the journal ends, and may reach further or not as far.
            first = end + 1 if kind == "A" else max(1, end - int(kind[-1]))
            log.append(ActionRecord(offset, appended(first, first + number), None))
            end = max(end, first + number)
        else:
            end = 0 if kind == "P" else end
            log.append(ActionRecord(offset, action(kind, number), None))
    check_same_journal(log)
