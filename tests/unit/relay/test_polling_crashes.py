"""A relay that dies at any point between two statements leaves a state in which the next one loses and repeats nothing.

Each effect of a relay (a read, a question, a Kafka transaction, a settlement) is a point to die at, before and after it
took place. The story that they die in has everything: a rollback, a late commit, a refused record with others behind
it, and one that is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import FencedError, TransientError, UnknownOutcomeError
from inorder.relay.stores.ports import MissingEvent
from inorder.testing.checker import Verdict, check_delivery
from tests.selection import examples
from tests.unit.relay.polling_world import OPTIONS, Dying, Effect, World, deaths

WANTED = [(b"a", 1), (b"a", 2), (b"b", 1), (b"c", 1), (b"c", 2), (b"d", 1), (b"e", 1), (b"e", 2)]
BAD = 9
"""The id of a row that is refused for ever, behind which its key `z` waits in the end."""


def story(*, is_fenced: bool = True, names_refused: bool = True) -> World:
    """Rows of which one comes late, one is refused until time 3, one is refused for ever, and one never came."""
    world = World(is_fenced=is_fenced, names_refused=names_refused)
    world.commit(("a", "1"))
    world.outbox.insert("gone", "t", b"x", b"1")
    world.outbox.end("gone", commit=False)
    world.outbox.insert("late", "t", b"b", b"1")
    world.later[2.0] = lambda: world.outbox.end("late")
    world.commit(("a", "2"), ("c", "1"), ("c", "2"), ("d", "1"), ("e", "1"))
    assert world.commit(("z", "1"), ("z", "2"), ("e", "2"))[0] == BAD
    world.refuses = lambda row: row.id == BAD or (row.key == b"c" and world.now < 3.0)
    return world


def is_told(world: World) -> bool:
    """Everything is delivered but the row that is refused for ever and the one that waits behind it."""
    return not world.later and world.tables.exceeded.keys() == {BAD} and world.tables.missing.keys() == {BAD + 1}


def verdict_of(world: World) -> Verdict:
    return check_delivery(WANTED, [(row.key, int(row.value or b"0")) for row in world.broker.records])


def finished(world: World) -> Verdict:
    """What is true after a relay that does not die has come to the end."""
    world.run(lambda: is_told(world) and world.tables.offset == BAD + 2, seconds=200.0)
    assert is_told(world), world.tables
    assert_every_id_is_accounted_for(world)
    return verdict_of(world)


def assert_every_id_is_accounted_for(world: World) -> None:
    """The offset has passed no visible row that is neither delivered nor recorded, and no id that may still come."""
    passed = {row.id for row in world.tables.rows() if row.id <= world.tables.offset}
    passed |= {id for id in world.outbox.open_ids() if id <= world.tables.offset}
    recorded = world.tables.missing.keys() | world.tables.exceeded.keys()
    assert passed <= recorded | {row.id for row in world.broker.records}


def test_the_story_has_a_happy_end() -> None:
    world = story()
    assert finished(world).holds
    assert world.tables.exceeded[BAD][0] == replace(
        MissingEvent(BAD, OPTIONS.missing_max_retries, True), missed_at=world.tables.exceeded[BAD][0].missed_at
    )
    assert world.tables.exceeded[BAD][1] == f"RECORD-001: Row {BAD} is too large."


def effects_of_the_story(*, names_refused: bool = True) -> int:
    world = story(names_refused=names_refused)
    finished(world)
    return len(world.effects)


@pytest.mark.parametrize("names_refused", [True, False], ids=["one transaction a round", "several"])
def test_a_relay_may_die_between_any_two_statements(names_refused: bool) -> None:
    """Every point, on both of its sides. Unless the broker names the refused record, a round is sent in parts."""
    for point in range(effects_of_the_story(names_refused=names_refused)):
        for is_done in (False, True):
            world = story(names_refused=names_refused)
            world.fate = deaths({point: is_done})
            with pytest.raises(Dying):
                finished(world)
            assert_every_id_is_accounted_for(world)
            verdict = finished(world)
            assert verdict.holds, (point, is_done, world.effects[point], verdict)


def test_without_transactions_a_death_repeats_and_loses_nothing() -> None:
    for point in range(0, effects_of_the_story(), 3):
        world = story(is_fenced=False)
        world.fate = deaths({point: True})
        with pytest.raises(Dying):
            finished(world)
        verdict = finished(world)
        assert replace(verdict, duplicated=0).holds, (point, verdict)


@examples(60)
@given(st.dictionaries(st.integers(0, 120), st.booleans(), max_size=8))
def test_relays_may_die_one_after_the_other(plan: dict[int, bool]) -> None:
    """Each relay begins where the last one died; the plan counts the effects of all of them."""
    world = story()
    world.fate = deaths(plan)
    for _ in range(len(plan) + 1):
        try:
            verdict = finished(world)
            break
        except Dying:
            assert_every_id_is_accounted_for(world)
    else:
        raise AssertionError("a relay died without a reason")
    assert verdict.holds, verdict


def failing(name: str, number: int, error: Exception, *, is_done: bool) -> Effect:
    """Fails at one effect of that name, done or not."""
    numbers = count()

    def fate(asked: str, effect: Callable[[], object]) -> object:
        fails = asked == name and next(numbers) == number
        found = effect() if is_done or not fails else None
        if fails:
            raise error
        return found

    return fate


@pytest.mark.parametrize("is_fenced", [True, False])
def test_the_answer_to_a_settlement_may_be_lost(is_fenced: bool) -> None:
    """It was written: the same settlement again changes nothing, and no event is sent again, fenced or not."""
    for number in range(8):
        world = story(is_fenced=is_fenced)
        world.fate = failing("settle", number, TransientError("The answer is lost."), is_done=True)
        verdict = finished(world)
        assert verdict.holds, (number, verdict)


@pytest.mark.parametrize("is_done", [True, False])
def test_an_unknown_commit_is_settled_by_the_marker(is_done: bool) -> None:
    """Done or not: nothing is guessed, and nothing is doubled."""
    for number in range(6):
        world = story()
        world.fate = failing("publish", number, UnknownOutcomeError("No answer."), is_done=is_done)
        assert finished(world).holds, number


def test_a_paused_owner_that_wakes_up_between_commit_and_settlement_writes_nothing() -> None:
    """Its successor has done all of it meanwhile, and it finds another offset."""
    world, woken = World(), list[str]()
    world.commit(("a", "1"), ("b", "1"))

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name == "settle" and not woken:
            woken.append("paused")
            world.run()
            assert world.sent() == ["1", "1"]
            world.commit(("a", "2"))
            world.run()
        return effect()

    world.fate = fate
    with pytest.raises(FencedError):
        world.run(lambda: False, seconds=20.0)
    assert (world.sent(), world.tables.offset, world.tables.missing) == (["1", "1", "2"], 3, {})


def test_a_relay_that_begins_again_and_again_does_not_use_up_attempts() -> None:
    """Each one finds that the record was refused, and leaves it alone until its time has come."""
    world = World(replace(OPTIONS, missing_wait=100.0))
    world.commit(("k", "1"))
    world.refuses = lambda _row: True
    for _ in range(10):
        world.run(lambda: False, seconds=3.0)
    assert (world.tables.missing[1].retry_count, world.tables.missing[1].exception_thrown) == (0, True)
    assert world.effects.count("publish") == 1
