"""Events that are brought again are appended once, and events that were overtaken are not lost silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal import client
from inorder.journal.client import append_missing, split_events
from inorder.model.errors import GuaranteeError
from inorder.model.journal import Event
from inorder.testing.memory_journal import REGIMES, Regime
from tests.unit.journal.world import KEY, World, event


def bring(world: World, *seq_nrs: int) -> int:
    return append_missing(world.journals, KEY, [event(seq_nr) for seq_nr in seq_nrs])


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_what_is_brought_again_is_not_appended_again(regime: Regime) -> None:
    world = World().follow(regime)
    assert bring(world, 1, 2, 3) == 3
    assert bring(world, 1, 2, 3) == 0
    assert bring(world, 2, 3, 4, 7) == 2
    assert world.read() == [1, 2, 3, 4, 7]
    assert world.forks == []


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_events_that_were_overtaken_are_refused(regime: Regime) -> None:
    world = World().follow(regime)
    bring(world, 8, 11, 12)
    with pytest.raises(GuaranteeError, match=r"Event 9 comes too late: the journal .* is past it and does not have it"):
        bring(world, 9, 10)
    with pytest.raises(GuaranteeError, match=r"Event 10 comes too late: .* is past it"):
        bring(world, 10, 11, 12, 13)
    assert world.read() == [8, 11, 12]


def test_events_that_are_deleted_were_there() -> None:
    world = World()
    bring(world, 1, 2, 3)
    world.journal.delete(2)
    assert bring(world, 1, 2, 3, 4) == 1
    assert world.read() == [3, 4]


def test_a_journal_that_was_purged_begins_again() -> None:
    world = World()
    bring(world, 1, 2)
    world.journal.purge()
    assert bring(world, 1, 2) == 2


def test_nothing_to_append_is_nothing_done() -> None:
    world = World()
    assert append_missing(world.journals, KEY, []) == 0
    assert world.journal.pointer() is None


def test_many_events_are_several_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_EVENTS", 2)
    world = World()
    assert bring(world, 1, 2, 3, 4, 5) == 5
    assert len({record.offset for record in world.journal.read()}) == 3


@given(st.lists(st.binary(max_size=300)), st.integers(1, 5), st.integers(1, 500))
def test_portions_keep_all_events_and_are_bounded(payloads: list[bytes], events: int, size: int) -> None:
    brought = [Event(number, payload) for number, payload in enumerate(payloads, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "MAX_EVENTS", events)
        patch.setattr(client, "MAX_BYTES", size)
        found = list(split_events(brought))
    assert [each for some in found for each in some] == brought
    assert all(1 <= len(some) <= events for some in found)
    lengths = [[len(payloads[each.seq_nr - 1]) for each in some] for some in found]
    assert all(len(some) == 1 or sum(some) <= size for some in lengths)
