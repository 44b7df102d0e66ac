"""The verdict on a history: every defect is named, nothing else is, and the witness is as short as it can be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inorder.model.errors import ConfigurationError
from inorder.verify.history import (
    CommitAnswer,
    History,
    MarkedEvent,
    Operation,
    RecordRead,
    RowRead,
    TopicRead,
    TransactionBegun,
    TransactionEnded,
    VerifyOutcome,
    ViolationKind,
    describe,
    dump,
    judge,
    parse,
)
from tests.selection import examples

COMMITTED, ROLLED_BACK, UNANSWERED = CommitAnswer.COMMITTED, CommitAnswer.ROLLED_BACK, CommitAnswer.UNANSWERED
LOST, DUPLICATED, REORDERED = ViolationKind.LOST, ViolationKind.DUPLICATED, ViolationKind.REORDERED
PHANTOM, STALE = ViolationKind.PHANTOM, ViolationKind.STALE


def a(place: int) -> MarkedEvent:
    return MarkedEvent("a", place)


def published(place: int, answer: CommitAnswer = COMMITTED, key: str = "a") -> list[Operation]:
    number = place + (100 if key == "b" else 0)
    return [TransactionBegun(number, (MarkedEvent(key, place),)), TransactionEnded(number, answer)]


def record(place: int, offset: int, key: str = "a", partition: int = 0) -> RecordRead:
    return RecordRead(MarkedEvent(key, place), partition, offset)


TWO = [*published(1), *published(2)]
OTHER = published(1, key="b")
OVERLAPPING: list[Operation] = [
    TransactionBegun(1, (a(1),)),
    TransactionBegun(2, (a(2),)),
    TransactionEnded(2, COMMITTED),
    TransactionEnded(1, COMMITTED),
]


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([*TWO, record(1, 0), record(2, 1), TopicRead()], id="once and in order"),
        pytest.param([*TWO, record(2, 7), record(1, 3), TopicRead()], id="offsets decide, not the order of reading"),
        pytest.param([*TWO, record(1, 0), record(1, 0), record(2, 1), TopicRead()], id="one offset read twice"),
        pytest.param([*OVERLAPPING, record(2, 0), record(1, 1), TopicRead()], id="transactions that overlap"),
        pytest.param([*published(1), *published(2, UNANSWERED), record(1, 0), TopicRead()], id="unanswered, absent"),
        pytest.param([*published(1, UNANSWERED), *published(2), record(2, 0), record(1, 1)], id="unanswered, late"),
        pytest.param([*published(1, ROLLED_BACK), *published(2), record(2, 0), TopicRead()], id="rolled back"),
        pytest.param([*TWO, record(1, 0), record(2, 1), RowRead("a", None), RowRead("a", 2)], id="a row"),
    ],
)
def test_what_is_allowed_is_ok(operations: list[Operation]) -> None:
    assert judge(History(tuple(operations))).outcome is VerifyOutcome.OK


@pytest.mark.parametrize(
    ("operations", "kind", "witness"),
    [
        pytest.param([*TWO, record(1, 0), TopicRead()], LOST, 3, id="missing"),
        pytest.param([*TWO, record(1, 0), record(1, 1), record(2, 2)], DUPLICATED, 3, id="twice"),
        pytest.param([*TWO, record(2, 0), record(1, 1), TopicRead()], REORDERED, 5, id="later first"),
        pytest.param([*TWO, record(2, 0)], REORDERED, 4, id="overtaken"),
        pytest.param([*TWO, record(1, 0), record(2, 0, partition=1)], REORDERED, 4, id="two partitions"),
        pytest.param([*published(1, ROLLED_BACK), record(1, 0)], PHANTOM, 3, id="rolled back and there"),
        pytest.param([*published(1), record(1, 0), record(9, 1)], PHANTOM, 1, id="of no transaction"),
        pytest.param([*published(1), record(1, 0), RowRead("a", 9)], PHANTOM, 1, id="a row of no transaction"),
        pytest.param(
            [*published(1), *published(2, UNANSWERED), record(1, 0), record(2, 1), record(2, 2)],
            DUPLICATED,
            3,
            id="unanswered and twice",
        ),
        pytest.param(
            [*TWO, record(1, 0), record(2, 1), RowRead("a", 2), RowRead("a", 1), RowRead("a", 2)],
            STALE,
            5,
            id="a row that went back",
        ),
        pytest.param([*published(1), record(1, 0), RowRead("a", 1), RowRead("a", None)], STALE, 3, id="a row vanished"),
        pytest.param(
            [*TWO, *OTHER, record(1, 0), record(2, 1), record(1, 2, "b"), RowRead("a", 1), RowRead("b", 1)],
            STALE,
            9,
            id="a row that was passed over",
        ),
        pytest.param(
            [*published(1), *OTHER, record(1, 0), record(1, 1, "b"), RowRead("a", None), RowRead("b", 1)],
            LOST,
            7,
            id="a row that is missing",
        ),
    ],
)
def test_a_defect_is_named_with_its_shortest_witness(
    operations: list[Operation], kind: ViolationKind, witness: int
) -> None:
    judgement = judge(History(tuple(operations)))
    assert {violation.kind for violation in judgement.violations} >= {kind}
    assert judgement.outcome is VerifyOutcome.FAILED
    assert len(judgement.witness) == witness, [describe(operation) for operation in judgement.witness]


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([*TWO, record(1, 0)], id="the last event still waits"),
        pytest.param([], id="nothing happened"),
        pytest.param([*published(1, UNANSWERED), TopicRead()], id="nothing is known to be committed"),
        pytest.param([*TWO, record(1, 0), record(2, 1), RowRead("a", 1)], id="the row may only be late"),
    ],
)
def test_what_cannot_be_decided_is_unknown(operations: list[Operation]) -> None:
    assert judge(History(tuple(operations))).outcome is VerifyOutcome.UNKNOWN


def test_where_the_delivery_is_at_least_once_a_repeated_event_is_no_violation() -> None:
    operations = (*TWO, record(1, 0), record(2, 1), record(1, 2), record(2, 3), TopicRead())
    assert judge(History(operations, may_repeat=True)).outcome is VerifyOutcome.OK
    assert judge(History(operations)).count(DUPLICATED) == 2


# Correct histories with a defect put into them.


@dataclass(frozen=True)
class Correct:
    """A history in which everything arrived, and what can be done to it."""

    begun: tuple[Operation, ...]
    records: tuple[RecordRead, ...]
    rows: tuple[RowRead, ...]

    def history(self) -> History:
        return History((*self.begun, *self.records, TopicRead(), *self.rows))


@st.composite
def correct(draw: st.DrawFn) -> Correct:
    """Transactions of up to three keys that may overlap with others of other keys; each key has one partition."""
    begun: list[Operation] = []
    records: list[RecordRead] = []
    places = dict.fromkeys("abc", 0)
    shown: dict[str, int | None] = dict.fromkeys("abc")
    open_: dict[int, tuple[MarkedEvent, ...]] = {}

    def end(number: int, answer: CommitAnswer) -> None:
        begun.append(TransactionEnded(number, answer))
        arrives = answer is COMMITTED or (answer is UNANSWERED and draw(st.booleans()))
        for event in open_.pop(number):
            if arrives:
                records.append(RecordRead(event, "abc".index(event.key) % 2, 2 * len(records)))
                shown[event.key] = event.place

    for number in range(1, draw(st.integers(2, 12))):
        busy = {event.key for events in open_.values() for event in events}
        free = sorted(set(places) - busy)
        if not free or (open_ and draw(st.booleans())):
            end(draw(st.sampled_from(sorted(open_))), draw(st.sampled_from([COMMITTED, ROLLED_BACK, UNANSWERED])))
            continue
        for key in (chosen := draw(st.lists(st.sampled_from(free), min_size=1, unique=True))):
            places[key] += 1
        open_[number] = tuple(MarkedEvent(key, places[key]) for key in chosen)
        begun.append(TransactionBegun(number, open_[number]))
    for number in sorted(open_):
        end(number, COMMITTED)
    return Correct(tuple(begun), tuple(records), tuple(RowRead(key, place) for key, place in shown.items()))


@given(correct())
@examples(300)
def test_a_correct_history_has_no_violation(made: Correct) -> None:
    assert judge(made.history()).violations == ()


def fates(made: Correct) -> dict[MarkedEvent, CommitAnswer]:
    events = {each.transaction: each.events for each in made.begun if isinstance(each, TransactionBegun)}
    ended = [each for each in made.begun if isinstance(each, TransactionEnded)]
    return {event: each.answer for each in ended for event in events[each.transaction]}


def lose(made: Correct, data: st.DataObject) -> Correct:
    answers = fates(made)
    committed = [each for each in made.records if answers[each.event] is COMMITTED]
    assume(committed)
    gone = data.draw(st.sampled_from(committed))
    return replace(made, records=tuple(each for each in made.records if each != gone), rows=())


def repeat(made: Correct, data: st.DataObject) -> Correct:
    assume(made.records)
    again = data.draw(st.sampled_from(made.records))
    later = replace(again, offset=again.offset + 2 * data.draw(st.integers(0, 9)) + 1)
    return replace(made, records=(*made.records, later))


def swap(made: Correct, data: st.DataObject) -> Correct:
    answers = fates(made)
    pairs = [
        (one, two)
        for one in made.records
        for two in made.records
        if one.event.key == two.event.key and one.offset < two.offset and answers[one.event] is COMMITTED
    ]
    assume(pairs)
    one, two = data.draw(st.sampled_from(pairs))
    swapped = {one: replace(one, offset=two.offset), two: replace(two, offset=one.offset)}
    return replace(made, records=tuple(swapped.get(each, each) for each in made.records), rows=())


def resurrect(made: Correct, data: st.DataObject) -> Correct:
    aborted = [event for event, answer in fates(made).items() if answer is ROLLED_BACK]
    assume(aborted)
    ghost = RecordRead(data.draw(st.sampled_from(aborted)), 0, 2 * data.draw(st.integers(0, 20)) + 1)
    return replace(made, records=(*made.records, ghost))


def set_back(made: Correct, data: st.DataObject) -> Correct:
    answers = fates(made)
    pairs = [
        (one.event, two.event)
        for one in made.records
        for two in made.records
        if one.event.key == two.event.key and one.offset < two.offset and answers[one.event] is COMMITTED
    ]
    assume(pairs)
    older, newer = data.draw(st.sampled_from(pairs))
    return replace(made, rows=(*made.rows, RowRead(newer.key, newer.place), RowRead(older.key, older.place)))


@pytest.mark.parametrize(
    ("defect", "kind"),
    [(lose, LOST), (repeat, DUPLICATED), (swap, REORDERED), (resurrect, PHANTOM), (set_back, STALE)],
)
@given(made=correct(), data=st.data())
@examples(150)
def test_a_defect_put_into_a_correct_history_is_named(
    defect: object, kind: ViolationKind, made: Correct, data: st.DataObject
) -> None:
    assert callable(defect)
    judgement = judge(defect(made, data).history())
    assert judgement.count(kind) >= 1


@pytest.mark.parametrize("defect", [lose, repeat, swap, resurrect, set_back])
@given(made=correct(), data=st.data())
@examples(100)
def test_a_witness_shows_a_violation_and_nothing_can_be_left_out(
    defect: object, made: Correct, data: st.DataObject
) -> None:
    assert callable(defect)
    judgement = judge(defect(made, data).history())
    shown = judge(History(judgement.witness)).violations
    assert set(shown) & set(judgement.violations)
    for operation in judgement.witness:
        rest = tuple(other for other in judgement.witness if other is not operation)
        if not isinstance(operation, TransactionBegun):
            assert not set(shown) & set(judge(History(rest)).violations) & set(judgement.violations)


# The file.


@given(made=correct(), may_repeat=st.booleans())
@examples(100)
def test_a_history_is_read_back_as_it_was_written(made: Correct, may_repeat: bool) -> None:
    history = History(made.history().operations, may_repeat)
    assert parse(dump(history, {"topic": "t"})) == history


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["[]"],
        ["{}"],
        ['{"format": "inorder history", "version": 2, "may_repeat": false}'],
        [*dump(History(())), "no JSON"],
        [*dump(History(())), '{"op": "other"}'],
        [*dump(History(())), '{"op": "row", "key": 1, "place": 1}'],
        [*dump(History(())), '{"op": "record", "event": ["a", true], "partition": 0, "offset": 0}'],
        [*dump(History(())), '{"op": "end", "transaction": 1, "answer": "perhaps"}'],
    ],
)
def test_a_file_that_is_no_history_is_refused(lines: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="not a history"):
        parse(lines)
