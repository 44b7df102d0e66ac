"""A dead letter that is applied late never overwrites newer data, and is settled exactly when it took effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import UnknownOutcomeError
from inorder.pipeline.dead_letters import Fate, RetryResult
from inorder.pipeline.stores.ports import LetterFilter
from tests.fakes.table_store import MemoryTableStore, message
from tests.unit.pipeline.old_letters import RELAXED, STRICT, History, MemorySource, Record

BAD = "not a number"


def record(offset: int, key: int, /, **fields: object) -> Record:
    return offset, str(key).encode(), message(key, **fields)


def fates(retried: list[RetryResult]) -> dict[str, Fate]:
    return {one.id: one.fate for one in retried}


def test_a_letter_whose_row_does_not_exist_is_applied_with_its_own_version_without_asking_the_topic() -> None:
    history = History().lived(record(3, 7, n=BAD), record(9, 8, n=1))
    assert fates(history.retry()) == {"upsert:0:3": Fate.APPLIED}
    assert history.rows == {7: (BAD, None, 3), 8: (1, None, 9)}
    assert (history.left, history.source.reads) == ([], 0)
    assert history.store.contents.settled == {("upsert", 0, 3): ("retry", "mended")}


def test_a_letter_that_a_newer_record_overtook_is_stale_and_stays() -> None:
    history = History().lived(record(3, 7, n=BAD), record(5, 7, n=1))
    [retried] = history.retry()
    assert retried == RetryResult("test", "upsert:0:3", Fate.STALE, "Its row has generation 0, offset 5.")
    assert history.rows == {7: (1, None, 5)}
    assert history.left == [3]


def test_a_stale_letter_is_settled_as_such_by_choice() -> None:
    history = History().lived(record(3, 7, n=BAD), record(5, 7, n=1))
    assert fates(history.retry(settles_stale=True)) == {"upsert:0:3": Fate.STALE}
    assert history.left == []
    assert history.store.contents.settled == {("upsert", 0, 3): ("stale", "mended")}


def test_a_newer_record_that_changed_nothing_is_found_in_the_topic_though_the_version_hides_it() -> None:
    # The version of the row is 1, below the letter's 3, and yet the record at 5 is newer than the letter.
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD, data="b"), record(5, 7, data="a"))
    assert history.rows == {7: (None, "a", 1)}
    [retried] = history.retry()
    assert retried == RetryResult("test", "upsert:0:3", Fate.STALE, "A newer record of its key is at offset 5.")
    assert history.rows == {7: (None, "a", 1)}


def test_an_older_row_with_nothing_newer_in_the_topic_takes_the_letter() -> None:
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD, data="b"), record(5, 8, data="x"))
    assert fates(history.retry()) == {"upsert:0:3": Fate.APPLIED}
    assert history.rows == {7: (BAD, "b", 3), 8: (None, "x", 5)}
    assert history.source.reads == 1


def test_the_newest_record_of_the_partition_needs_no_look_at_the_topic() -> None:
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD))
    history.source.first = 4
    assert fates(history.retry()) == {"upsert:0:3": Fate.APPLIED}


@pytest.mark.parametrize("first", [4, 5])
def test_what_the_topic_no_longer_holds_proves_nothing_and_the_letter_stays(first: int) -> None:
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD, data="b"), record(6, 8, data="x"))
    history.source.first = first
    [retried] = history.retry()
    if first == 4:
        assert retried.fate is Fate.APPLIED
    else:
        assert retried.fate is Fate.UNPROVEN
        assert "holds offsets 5 to 6; only offsets 4 to 6 show whether the key has a newer record" in retried.detail
        assert (history.left, history.rows[7]) == ([3], (None, "a", 1))


def test_a_topic_that_was_made_anew_proves_nothing() -> None:
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD, data="b"), record(6, 8, data="x"))
    history.source = MemorySource()
    assert fates(history.retry()) == {"upsert:0:3": Fate.UNPROVEN}


def test_a_pipeline_that_went_on_to_another_generation_applies_only_what_the_table_can_tell() -> None:
    history = History().lived(
        record(1, 7, data="a"), record(2, 6, n=BAD), record(3, 7, n=BAD), record(4, 5, n=BAD), record(5, 6, n=1)
    )
    assert fates(history.retry(newest_generation=1)) == {
        "upsert:0:2": Fate.STALE,
        "upsert:0:3": Fate.UNPROVEN,
        "upsert:0:4": Fate.APPLIED,
    }


def test_letters_of_one_key_end_as_if_they_had_been_valid_when_they_came() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD, data="b"), record(3, 7, n=f"{BAD}!"))
    assert set(fates(history.retry()).values()) == {Fate.APPLIED}
    assert history.rows == {7: (f"{BAD}!", "b", 3)}


def test_a_discarded_letter_is_no_newer_data() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD), record(3, 7, n="x"), record(4, 8, n=1))
    with history.store.slice_transaction("upsert", 0) as transaction:
        assert transaction.settle(3, "discard", "of no use")
    assert fates(history.retry()) == {"upsert:0:2": Fate.APPLIED}


def test_a_record_that_only_an_older_mapping_took_is_newer_data_all_the_same() -> None:
    # 4 was applied as long as n was a number of the old mapping; the new one rejects it, but its row had it.
    history = History().lived(record(1, 7, n=4), record(2, 7, n=BAD), record(4, 7, n=4), record(5, 8, n=1))
    assert history.rows[7] == (4, None, 1)
    assert fates(history.retry()) == {"upsert:0:2": Fate.STALE}


def test_a_record_without_a_key_that_only_an_older_mapping_took_may_have_been_anybodys() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD))
    history.lived((4, None, message(8, n=4)), record(5, 8, data="x"))
    assert fates(history.retry()) == {"upsert:0:2": Fate.STALE}


def test_a_newer_record_without_a_key_of_its_own_is_found_by_what_it_says() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD, data="b"), (4, None, message(7, data="a")))
    assert fates(history.retry()) == {"upsert:0:2": Fate.STALE}


def test_a_letter_without_a_key_of_its_own_is_held_against_records_that_have_one() -> None:
    history = History().lived(record(1, 7, data="a"), (2, None, message(7, n=BAD, data="b")), record(4, 7, data="a"))
    assert fates(history.retry()) == {"upsert:0:2": Fate.STALE}


def test_a_record_that_asks_for_nothing_is_no_newer_data() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD), record(3, 7), record(5, 7, other=1))
    assert fates(history.retry()) == {"upsert:0:2": Fate.APPLIED}


def test_a_delete_that_came_later_is_not_undone() -> None:
    history = History().lived(record(2, 7, n=BAD), (4, b"7", None))
    assert fates(history.retry()) == {"upsert:0:2": Fate.STALE}
    assert history.rows == {}


def test_a_letter_that_is_still_invalid_stays_with_the_reason_of_today() -> None:
    history = History().lived(record(2, 7, n=BAD))
    [retried] = history.retry(mapping=STRICT)
    assert (retried.fate, history.left) == (Fate.REJECTED, [2])
    assert retried.detail == "The field 'n' is a JSON string, not integer: 'not a number'. (wrong-type)"


def test_a_letter_that_the_database_refuses_stays_and_the_others_are_applied() -> None:
    history = History(MemoryTableStore(refuses=lambda row: "no" in row.values))
    history.lived(record(1, 6, n="a"), record(2, 7, n="no"), record(3, 8, n="b"))
    assert list(fates(history.retry()).values()) == [Fate.APPLIED, Fate.REJECTED, Fate.APPLIED]
    assert (history.left, sorted(map(str, history.rows))) == ([2], ["6", "8"])


def test_a_letter_that_asks_for_nothing_any_more_is_settled() -> None:
    history = History().lived(record(2, 7, n=BAD))
    fieldless = RELAXED.__class__("test", "upsert", "messages", fields=(("data", "text"),))
    assert fates(history.retry(mapping=fieldless)) == {"upsert:0:2": Fate.UNCHANGED}
    assert (history.left, history.rows) == ([], {})


def test_a_letter_that_would_change_nothing_is_settled_and_leaves_the_row_alone() -> None:
    history = History().lived(record(1, 7, data="a"), record(2, 7, n=BAD, data="a"))
    fieldless = RELAXED.__class__("test", "upsert", "messages", fields=(("data", "text"),))
    history.store.contents.rows[7] = history.store.contents.rows[7].__class__(("a",), (0, 1))
    assert fates(history.retry(mapping=fieldless)) == {"upsert:0:2": Fate.UNCHANGED}
    assert history.rows == {7: ("a", 1)}


@pytest.mark.parametrize("truth", ["committed", "rolled back"])
def test_a_lost_answer_to_commit_ends_with_the_letter_applied_once(truth: Literal["committed", "rolled back"]) -> None:
    history = History().lived(record(2, 7, n=BAD))
    history.store.lost_answers.append(truth)
    assert fates(history.retry()) == {"upsert:0:2": Fate.APPLIED}
    assert (history.rows, history.left) == ({7: (BAD, None, 2)}, [])


def test_through_the_topic_a_letter_with_nothing_newer_becomes_the_newest_record() -> None:
    history = History().lived(record(1, 7, data="a"), record(3, 7, n=BAD), record(5, 8, n=1))
    [retried] = history.retry(through_topic=True)
    assert retried == RetryResult("test", "upsert:0:3", Fate.SENT, "It is at offset 6 now.")
    assert history.left == []
    history.consume(RELAXED)
    assert history.rows[7] == (BAD, "a", 6)


def test_through_the_topic_a_newer_record_that_nobody_has_read_yet_keeps_the_letter_out() -> None:
    history = History().lived(record(3, 7, n=BAD))
    history.publish(record(5, 7, n=1))
    [retried] = history.retry(through_topic=True)
    assert retried == RetryResult("test", "upsert:0:3", Fate.STALE, "A newer record of its key is at offset 5.")
    assert len(history.source.records) == 2
    assert history.left == [3]


def test_nothing_is_sent_to_a_topic_that_is_being_switched_away() -> None:
    history = History().lived(record(3, 7, n=BAD))
    [retried] = history.retry(through_topic=True, is_closed=True)
    assert retried.fate is Fate.UNPROVEN
    assert "retry it through the table" in retried.detail
    assert (len(history.source.records), history.left) == (1, [3])
    assert fates(history.retry(is_closed=True)) == {"upsert:0:3": Fate.APPLIED}


def test_through_the_table_a_newer_record_that_nobody_has_read_yet_wins_afterwards() -> None:
    history = History().lived(record(3, 7, n=BAD, data="old"))
    history.publish(record(5, 7, data="new"))
    assert fates(history.retry()) == {"upsert:0:3": Fate.APPLIED}
    history.consume(RELAXED)
    assert history.rows == {7: (BAD, "new", 5)}


def test_through_the_topic_letters_of_one_key_keep_their_order() -> None:
    history = History().lived(record(2, 7, n=BAD, data="b"), record(3, 7, n=f"{BAD}!"))
    assert set(fates(history.retry(through_topic=True)).values()) == {Fate.SENT}
    history.consume(RELAXED)
    assert history.rows[7][:2] == (f"{BAD}!", "b")


def test_a_letter_that_a_replay_has_applied_is_settled_and_changes_nothing() -> None:
    history = History().lived(record(2, 7, n=BAD))
    history.store.contents.pointers.clear()
    history.consume(RELAXED)
    assert (history.rows, history.left) == ({7: (BAD, None, 2)}, [2])
    assert [one.fate for one in history.retry()] == [Fate.UNCHANGED]
    assert (history.rows, history.left) == ({7: (BAD, None, 2)}, [])


def test_answers_that_are_always_lost_are_an_error_that_says_what_to_do() -> None:
    history = History().lived(record(2, 7, n=BAD))
    history.store.lost_answers.extend(["rolled back"] * 3)
    with pytest.raises(UnknownOutcomeError, match=r"letters of upsert\[0\] is unknown after 3 attempts"):
        history.retry()
    assert history.left == [2]


def test_a_letter_that_was_sent_and_not_settled_is_found_stale_and_not_sent_again() -> None:
    history = History().lived(record(3, 7, n=BAD))
    history.store.lost_answers.append("rolled back")
    assert fates(history.retry(through_topic=True)) == {"upsert:0:3": Fate.STALE}
    assert [offset for offset, _, _ in history.source.records] == [3, 4]


def test_only_what_was_asked_for_is_retried() -> None:
    history = History().lived(record(2, 6, n=BAD), record(3, 7, n=BAD))
    assert fates(history.retry(wanted=LetterFilter(key=b"7"))) == {"upsert:0:3": Fate.APPLIED}
    assert history.left == [2]


Step = tuple[int, str | None, str | None, str]
steps = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from([None, "bad", "worse"]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from(["read", "wait", "retry", "send", "discard"]),
    ),
    max_size=14,
)


@given(steps)
def test_whatever_happens_no_row_ever_falls_behind_the_newest_valid_record_of_its_key(history: list[Step]) -> None:
    """`data` is a clock here: each valid record carries a higher one, so a value that falls was overwritten."""
    lived = History()
    newest: dict[object, str] = {}
    for offset, (key, bad, data, then) in enumerate(history):
        fields = {"n": bad, "data": data and f"{offset:03}{data}"}
        lived.publish(record(lived.source.end, key, **{name: value for name, value in fields.items() if value}))
        if then != "wait":
            lived.consume()
        if then in ("retry", "send"):
            lived.retry(through_topic=then == "send")
        elif then == "discard" and lived.left:
            with lived.store.slice_transaction("upsert", 0) as transaction:
                transaction.settle(lived.left[0], "discard", "")
        for row, values in lived.rows.items():
            seen = str(values[1] or "")
            assert seen >= newest.get(row, ""), (row, values, newest)
            newest[row] = seen


def test_a_letter_without_a_key_is_retried_once_its_topic_may_have_such_records() -> None:
    history = History()
    history.store.begin("upsert", None, {0: 0, 1: 0})
    history.lived((3, None, message(7, n=BAD)))
    assert history.rows == {}
    [rejected] = history.retry()
    assert (rejected.fate, "no-record-key" in rejected.detail) == (Fate.REJECTED, True)
    assert fates(history.retry(mapping=replace(RELAXED, keyless="apply"))) == {"upsert:0:3": Fate.APPLIED}
    assert history.rows == {7: (BAD, None, 3)}


def test_a_letter_without_a_key_of_a_topic_with_one_partition_is_retried_as_ever() -> None:
    history = History().lived((3, None, message(7, n=BAD)))
    assert fates(history.retry()) == {"upsert:0:3": Fate.APPLIED}
