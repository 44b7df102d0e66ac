"""What the log has beyond the store: the original's table, and the cases that it lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Action, Delete, Mark, Purge
from inorder.journal.life import Life, after
from inorder.journal.reading.head import EMPTY, HeadInfo, doubt, fold, plan_from_cache
from tests.unit.journal.acting import LIFE, appended, head


def append_head(offset: int, first: int, last: int, delete_to: int = 0) -> HeadInfo:
    return HeadInfo(append_offset=offset, first_seq_nr=first, seq_nr=last, delete_to=delete_to)


def deleted(to: int) -> HeadInfo:
    return HeadInfo(delete_to=to)


@pytest.mark.parametrize(
    ("before", "action", "then"),
    [
        (EMPTY, appended(1, 2), append_head(1, 1, 2)),
        (EMPTY, Delete(10), deleted(10)),
        (EMPTY, Purge(), HeadInfo(purged_at=1)),
        (EMPTY, Mark("x"), EMPTY),
        (append_head(0, 1, 1), appended(2, 3), append_head(0, 1, 3)),
        (append_head(0, 1, 2, 1), appended(3, 4), append_head(0, 1, 4, 1)),
        (append_head(0, 1, 2), Delete(3), append_head(0, 1, 2, 2)),
        (append_head(0, 1, 2), Delete(1), append_head(0, 1, 2, 1)),
        (append_head(0, 1, 2, 1), Delete(3), append_head(0, 1, 2, 2)),
        (append_head(0, 1, 2, 2), Delete(1), append_head(0, 1, 2, 2)),
        (append_head(0, 1, 2), Purge(), HeadInfo(purged_at=1)),
        (append_head(0, 1, 2), Mark("x"), append_head(0, 1, 2)),
        (deleted(1), appended(1, 2), append_head(1, 1, 2)),
        (deleted(10), appended(1, 2), append_head(1, 1, 2)),
        (deleted(10), appended(2, 3), append_head(1, 2, 3, 1)),
        (deleted(1), Delete(2), deleted(2)),
        (deleted(2), Delete(1), deleted(2)),
        (deleted(2), Purge(), HeadInfo(purged_at=1)),
        (HeadInfo(purged_at=0), Purge(), HeadInfo(purged_at=1)),
        (HeadInfo(purged_at=0), Mark("x"), HeadInfo(purged_at=0)),
        (HeadInfo(purged_at=0), Delete(3), HeadInfo(purged_at=0, delete_to=3)),
    ],
)
def test_the_head_after_one_more_action(before: HeadInfo, action: Action, then: HeadInfo) -> None:
    assert fold(before, action, 1) == then


def test_an_append_after_a_purge_does_not_forget_the_purge() -> None:
    # The original's head would be Append(2, 1) as if nothing had been purged.
    info = fold(HeadInfo(purged_at=1), appended(1), 2)
    assert info == HeadInfo(purged_at=1, append_offset=2, first_seq_nr=1, seq_nr=1)


@pytest.mark.parametrize("numbers", [(1, 1), (2, 2), (1, 5)])
def test_numbers_that_do_not_rise_make_the_head_doubtful(numbers: tuple[int, int]) -> None:
    info = fold(append_head(0, 1, 2), appended(*numbers), 3)
    assert info.is_doubtful
    assert plan_from_cache(info, None, 0, None) is None
    assert not fold(info, Purge(), 4).is_doubtful


def test_a_record_that_cannot_be_read_makes_the_head_doubtful_until_a_purge() -> None:
    assert doubt(EMPTY).is_doubtful
    assert fold(doubt(append_head(0, 1, 2)), Delete(1), 3).is_doubtful
    assert fold(doubt(EMPTY), Purge(), 3) == HeadInfo(purged_at=3)


def test_a_head_below_what_the_store_has_is_doubtful_unless_the_store_has_just_that() -> None:
    info = append_head(5, 3, 4)
    assert plan_from_cache(info, head(2, 3), 0, None) is None
    plan = plan_from_cache(info, head(5, 4), 0, None)
    assert plan is not None
    assert (plan.life, plan.log_from) == (Life(4), None)


def test_a_purge_counts_until_it_is_replicated() -> None:
    info = HeadInfo(purged_at=5, append_offset=6, first_seq_nr=1, seq_nr=2)
    old, new = head(4, 9), head(6, 1)
    waiting = plan_from_cache(info, old, 0, replicated=4)
    assert waiting is not None
    assert (waiting.head, waiting.pointer, waiting.log_from) == (None, 2, 6)
    # From then on the store has the new life, and the log may have lost what the store has.
    done = plan_from_cache(info, new, 0, replicated=6)
    assert done is not None
    assert (done.head, done.pointer, done.log_from) == (new, 2, 7)


actions = st.one_of(
    st.builds(lambda first, more: ("append", first, more), st.integers(1, 3), st.integers(0, 3)),
    st.builds(lambda to: ("delete", to, 0), st.integers(1, 20)),
    st.just(("purge", 0, 0)),
    st.just(("mark", 0, 0)),
)


@given(st.lists(actions, max_size=12), st.integers(0, 12))
def test_the_numbers_that_are_kept_lead_where_a_replay_leads(steps: list[tuple[str, int, int]], cut: int) -> None:
    """With rising numbers the fold over any part of the log equals the replay of all of it."""
    life: Life | None = None
    stored: Life | None = None
    info, applied, end = EMPTY, -1, 0
    for offset, (kind, number, more) in enumerate(steps):
        action: Action = Mark("x")
        if kind == "append":
            action = appended(end + number, end + number + more)
        elif kind == "delete":
            action = Delete(number)
        elif kind == "purge":
            action = Purge()
        life = after(life, action)
        end = 0 if life is None else life.end
        if offset < cut:
            stored, applied = life, offset
        else:
            info = fold(info, action, offset)
    row = None
    if stored is not None:
        row = head(applied, stored.seq_nr, stored.delete_to or None, record_id=LIFE if stored.is_begun else None)
    plan = plan_from_cache(info, row, 0, applied if applied >= 0 else None)
    assert plan is not None
    assert plan.pointer == (None if life is None else life.seq_nr)
    shown = 0 if life is None or not life.is_begun else life.delete_to
    hidden = 0 if plan.life is None or not plan.life.is_begun else plan.life.delete_to
    # Numbers that were never appended may be hidden or not; there is nothing to see.
    assert hidden == shown or (hidden < info.first_seq_nr and shown < info.first_seq_nr)
