"""What the log has beyond the store: the original's table, and the cases that it lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Action, Delete, Mark, Purge
from inorder.journal.life import JournalFold, Life
from inorder.journal.reading.head import EMPTY, MAX_ACTIONS, HeadInfo, ReadPlan, doubt, keep, plan_from_cache
from inorder.journal.stores.ports import JournalHead
from tests.unit.journal.acting import LIFE, appended, head
from tests.unit.journal.world import KEY


def kept(*actions: Action, first: int = 0) -> HeadInfo:
    info = EMPTY
    for offset, action in enumerate(actions, first):
        info = keep(info, action, offset)
    return info


def plan(info: HeadInfo, stored: JournalHead | None = None, replicated: int | None = None) -> ReadPlan | None:
    return plan_from_cache(info, stored, KEY, 0, replicated)


def bound(to: int) -> Life:
    return Life(to, to, is_begun=False)


@pytest.mark.parametrize(
    ("actions", "life", "log_from"),
    [
        ([appended(1, 2)], Life(2), 0),
        ([Delete(10)], bound(10), None),
        ([Purge()], None, None),
        ([Mark("x")], None, None),
        ([appended(1), appended(2, 3)], Life(3), 0),
        ([appended(1, 2), Delete(1), appended(3, 4)], Life(4, 1), 0),
        ([appended(1, 2), Delete(3)], Life(2, 2), 0),
        ([appended(1, 2), Delete(1)], Life(2, 1), 0),
        ([appended(1, 2), Delete(1), Delete(3)], Life(2, 2), 0),
        ([appended(1, 2), Delete(2), Delete(1)], Life(2, 2), 0),
        ([appended(1, 2), Purge()], None, None),
        ([appended(1, 2), Mark("x")], Life(2), 0),
        ([Delete(1), appended(1, 2)], Life(2), 1),
        ([Delete(10), appended(1, 2)], Life(2), 1),
        ([Delete(10), appended(2, 3)], Life(3, 1), 1),
        ([Delete(1), Delete(2)], bound(2), None),
        ([Delete(2), Delete(1)], bound(2), None),
        ([Delete(2), Purge()], None, None),
        ([Purge(), Delete(3)], bound(3), None),
        # The original forgets the purge with the append.
        ([appended(1, 9), Purge(), appended(1)], Life(1), 2),
    ],
)
def test_the_journal_after_the_actions_of_the_log(
    actions: list[Action], life: Life | None, log_from: int | None
) -> None:
    found = plan(kept(*actions))
    assert found is not None
    assert (found.life, found.log_from) == (life, log_from)


def test_numbers_that_do_not_rise_do_not_count() -> None:
    for numbers in [(1, 1), (2, 2), (1, 2)]:
        found = plan(kept(appended(1, 2), appended(*numbers)))
        assert found is not None
        assert found.life == Life(2)


def test_a_record_that_cannot_be_read_is_lacking_until_the_store_has_it_or_a_purge() -> None:
    info = doubt(kept(appended(1, 2)), 3)
    assert plan(info) is None
    assert plan(keep(info, Delete(1), 4)) is None
    found = plan(keep(info, Delete(1), 4), head(3, 2))
    assert found is not None
    assert found.life == Life(2, 1)
    assert keep(info, Purge(), 4) == kept(Purge(), first=4)


def test_of_too_many_actions_the_newest_are_kept_and_count_once_the_store_has_the_others() -> None:
    info = kept(*(appended(number) for number in range(1, MAX_ACTIONS + 3)))
    assert len(info.actions) == MAX_ACTIONS
    assert (info.first, info.lacks) == (0, 1)
    assert plan(info) is None
    found = plan(info, head(1, 2), replicated=1)
    assert found is not None
    assert found.life == Life(MAX_ACTIONS + 2)
    assert found.log_from == 2


def test_what_the_store_has_is_not_kept() -> None:
    info = keep(kept(appended(1), appended(2)), appended(3), 2, replicated=0)
    assert [each.offset for each in info.actions] == [1, 2]


def test_an_action_that_the_head_includes_is_left_out() -> None:
    found = plan(kept(appended(3, 4), first=5), head(5, 4))
    assert found is not None
    assert (found.life, found.log_from) == (Life(4), None)


def test_a_purge_counts_until_it_is_replicated() -> None:
    info = kept(Purge(), appended(1), appended(2), first=5)
    old, new = head(4, 9), head(6, 1)
    waiting = plan(info, old, replicated=4)
    assert waiting is not None
    assert (waiting.head, waiting.pointer, waiting.log_from, waiting.purged_at) == (None, 2, 6, 5)
    # From then on the store has the new life, and the log may have lost what the store has.
    done = plan(info, new, replicated=6)
    assert done is not None
    assert (done.head, done.pointer, done.log_from) == (new, 2, 7)


actions = st.one_of(
    st.builds(lambda first, more: ("append", first, more), st.integers(-2, 3), st.integers(0, 3)),
    st.builds(lambda to: ("delete", to, 0), st.integers(1, 20)),
    st.just(("purge", 0, 0)),
    st.just(("mark", 0, 0)),
)


@given(st.lists(actions, max_size=12), st.integers(0, 12))
def test_the_actions_that_are_kept_lead_where_a_replay_leads(steps: list[tuple[str, int, int]], cut: int) -> None:
    fold = JournalFold(KEY, 0)
    life: Life | None = None
    stored: Life | None = None
    info, applied = EMPTY, -1
    for offset, (kind, number, more) in enumerate(steps):
        action: Action = Mark("x")
        if kind == "append":
            first = max(1, number + (life.end if life else 0))
            action = appended(first, first + more)
        elif kind == "delete":
            action = Delete(number)
        elif kind == "purge":
            action = Purge()
        life = fold.after(life, action, offset)
        if offset < cut:
            stored, applied = life, offset
        else:
            info = keep(info, action, offset)
    row = None
    if stored is not None:
        row = head(applied, stored.seq_nr, stored.delete_to or None, record_id=LIFE if stored.is_begun else None)
    found = plan(info, row, applied if applied >= 0 else None)
    assert found is not None
    assert found.life == life
