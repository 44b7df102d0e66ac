"""What a polling relay does, round by round: gaps, late rows, refused records, and keys that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from inorder.model.message import OutboxRow
from inorder.relay import polling
from inorder.relay.stores.ports import MissingEvent
from tests.unit.relay.polling_world import OPTIONS, World


def test_a_busy_round_costs_one_read_one_transaction_and_one_settlement() -> None:
    world = World(replace(OPTIONS, batch_size=1000))
    world.commit(*[("k", str(number)) for number in range(2500)])
    world.run()
    counts = Counter(world.effects)
    assert world.sent() == [str(number) for number in range(2500)]
    # The first rounds are smaller, because the size of the rows is unknown.
    assert counts["publish"] == counts["settle"] <= 4
    assert (counts["read"], counts["holders"]) == (counts["settle"], 0)


def test_an_idle_relay_asks_one_question_a_look_and_writes_nothing() -> None:
    world = World()
    world.commit(("k", "1"))
    world.run()
    world.effects.clear()
    world.run(lambda: len(world.effects) > 50)
    begun = world.effects.index("parked")
    assert set(world.effects[begun:]) <= {"read", "missing", "parked", "offset"}
    asked = Counter(world.effects[begun:])
    assert asked["read"] > 15
    assert asked["offset"] < asked["read"] / 2, "now and then it looks whether the offset was set back"


def test_ids_that_are_rolled_back_at_once_are_never_even_recorded() -> None:
    """The transactions that may hold them have ended when the round is settled, and one more look is final."""
    world, recorded = World(), list[int]()
    for number in range(20):
        world.outbox.insert(f"gone{number}", "t", b"x", b"no")
        world.outbox.end(f"gone{number}", commit=False)
        world.commit(("k", str(number)))

    def fate(_name: str, effect: Callable[[], object]) -> object:
        recorded.append(len(world.tables.missing))
        return effect()

    world.fate = fate
    world.run()
    assert world.sent() == [str(number) for number in range(20)]
    assert (max(recorded), world.tables.offset, world.tables.exceeded) == (0, 40, {})


def test_a_transaction_that_outlives_every_budget_is_waited_for_and_uses_up_nothing() -> None:
    world = World()
    world.outbox.insert("late", "t", b"late", b"late")
    world.commit(("k", "1"))
    world.later[500.0] = lambda: world.outbox.end("late")
    world.run(lambda: world.now > 490.0, seconds=600.0)
    assert world.tables.missing[1].retry_count == 0
    world.run(seconds=600.0)
    assert (world.sent(), world.tables.exceeded) == (["1", "late"], {})


def test_a_late_row_goes_before_what_its_transaction_could_not_hold_back_any_more() -> None:
    """It and a later row of its key appear together: they go in the order of their ids."""
    world = World()
    world.outbox.insert("late", "t", b"k", b"first")
    world.commit(("other", "1"))
    world.run(lambda: world.tables.offset == 2)
    world.outbox.end("late")
    world.commit(("k", "second"))
    world.run()
    assert world.sent() == ["1", "first", "second"]


@pytest.mark.parametrize("most_probes", [20_000, 1])
@pytest.mark.parametrize("after_read", range(6))
def test_rows_that_appear_between_two_statements_keep_their_order(
    monkeypatch: pytest.MonkeyPatch, most_probes: int, after_read: int
) -> None:
    """Late rows and one that has seen them are committed right after some read, also where one read is not enough."""
    monkeypatch.setattr(polling, "MOST_PROBES", most_probes)
    world, reads = World(), count()
    world.outbox.insert("late", "t", b"k", b"first")
    world.outbox.insert("later", "t", b"k", b"second")
    world.commit(("other", "1"))
    world.run(lambda: world.tables.offset == 3)

    def fate(name: str, effect: Callable[[], object]) -> object:
        found = effect()
        if name == "read" and next(reads) == after_read:
            world.outbox.end("late")
            world.outbox.end("later")
            world.commit(("k", "third"))
        return found

    world.fate = fate
    world.run(lambda: len(world.sent()) == 4)
    assert world.sent() == ["1", "first", "second", "third"]


def test_where_transactions_cannot_be_named_a_gap_has_so_many_waits_and_then_is_given_up() -> None:
    world = World(names_holders=False)
    world.outbox.insert("gone", "t", b"x", b"no")
    world.outbox.end("gone", commit=False)
    world.commit(("k", "1"))
    loop = world.run(lambda: bool(world.tables.exceeded), seconds=60.0)
    event, reason = world.tables.exceeded[1]
    assert event.retry_count == OPTIONS.missing_max_retries
    assert "No transaction committed this row" in reason
    assert world.now >= OPTIONS.missing_max_retries * OPTIONS.missing_wait
    assert (loop.progress.exceeded, world.sent()) == (1, ["1"])


def test_where_transactions_cannot_be_named_a_late_row_is_delivered_within_its_budget() -> None:
    world = World(names_holders=False)
    world.outbox.insert("late", "t", b"x", b"late")
    world.commit(("k", "1"))
    world.later[2.0] = lambda: world.outbox.end("late")
    world.run(seconds=60.0)
    assert (world.sent(), world.tables.exceeded) == (["1", "late"], {})


def test_a_refused_record_holds_its_key_and_nobody_else() -> None:
    world = World()
    world.refuses = lambda row: row.value == b"bad" and world.now < 2.0
    world.commit(("k", "before"), ("k", "bad"), ("other", "1"), ("k", "behind"), ("other", "2"))
    world.run(lambda: world.tables.offset == 5)
    assert world.sent() == ["before", "1", "2"]
    assert {id: event.exception_thrown for id, event in world.tables.missing.items()} == {2: True, 4: False}
    world.run()
    assert world.sent() == ["before", "1", "2", "bad", "behind"]


def test_without_an_order_to_keep_later_events_of_the_key_pass() -> None:
    world = World(replace(OPTIONS, keep_order=False))
    world.refuses = lambda row: row.value == b"bad"
    world.commit(("k", "bad"), ("k", "behind"))
    world.run(lambda: bool(world.tables.exceeded))
    world.commit(("k", "later"))
    world.run()
    assert world.sent() == ["behind", "later"]


def test_attempts_are_a_length_of_time() -> None:
    world = World()
    world.refuses = lambda row: row.value == b"bad"
    world.commit(("k", "bad"), *[("other", str(number)) for number in range(30)])
    world.run(lambda: bool(world.tables.exceeded))
    assert world.now >= OPTIONS.missing_max_retries * OPTIONS.missing_wait
    assert world.tables.exceeded[1][0].retry_count == OPTIONS.missing_max_retries


@pytest.mark.parametrize(("action", "sent"), [("retry", ["bad", "behind", "later"]), ("discard", ["behind", "later"])])
def test_an_exceeded_event_parks_its_key_until_a_person_decides(action: str, sent: list[str]) -> None:
    world = World()
    good: list[bool] = []
    world.refuses = lambda row: row.value == b"bad" and not good
    world.commit(("k", "bad"), ("k", "behind"))
    world.run(lambda: bool(world.tables.exceeded))
    world.commit(("k", "later"))
    world.run(lambda: world.tables.offset == 3)
    assert (world.sent(), sorted(world.tables.missing)) == ([], [2, 3])
    good.append(True)
    getattr(world.tables, action)(1)
    world.run()
    assert world.sent() == sent


def test_a_person_releases_a_key_while_the_relay_runs() -> None:
    world = World()
    good: list[bool] = []
    world.refuses = lambda row: row.value == b"bad" and not good
    world.commit(("k", "bad"), ("k", "behind"))

    def release() -> None:
        good.append(True)
        world.tables.retry(1)

    world.later[20.0] = release
    world.run()
    assert (world.sent(), world.tables.exceeded) == (["bad", "behind"], {})


def test_a_late_row_does_not_pass_those_that_were_released_before_it() -> None:
    """More wait for the refused record than are looked at at once, and a gap behind them fills at that moment."""
    world = World(replace(OPTIONS, missing_wait=5.0))
    good: list[bool] = []
    world.refuses = lambda row: row.value == b"bad" and not good
    world.commit(("k", "bad"), *[("k", str(number)) for number in range(2, 7)])
    world.outbox.insert("late", "t", b"k", b"7")
    world.commit(("other", "8"))
    world.run(lambda: world.tables.offset == 8)

    def fate(name: str, effect: Callable[[], object]) -> object:
        if name == "publish" and not good:
            good.append(True)
            world.outbox.end("late")
        return effect()

    world.fate = fate
    world.run()
    assert world.sent() == ["8", "bad", "2", "3", "4", "5", "6", "7"]


def test_by_the_policy_skip_the_key_goes_on_without_the_event() -> None:
    world = World(replace(OPTIONS, policy=lambda _topic: "skip"))
    world.refuses = lambda row: row.value == b"bad"
    world.commit(("k", "bad"), ("k", "behind"))
    world.run()
    assert (world.sent(), list(world.tables.exceeded)) == (["behind"], [1])
    world.commit(("k", "later"))
    world.run()
    assert world.sent() == ["behind", "later"]


def test_by_the_policy_block_everything_waits_for_the_event() -> None:
    world, refusals = World(replace(OPTIONS, policy=lambda _topic: "block", missing_wait=0.0)), list[list[str]]()

    def refuses(row: OutboxRow) -> bool:
        is_bad = row.value == b"bad" and len(refusals) < 10
        refusals.extend([world.sent()] * is_bad)
        return is_bad

    world.refuses = refuses
    world.commit(("k", "bad"), ("other", "1"))
    world.run()
    assert (refusals, world.sent(), world.tables.exceeded) == ([[]] * 10, ["bad", "1"], {})


def test_a_malformed_row_is_given_up_at_once_and_one_without_a_key_parks_nobody() -> None:
    world = World()
    for key in (b"k", None):
        world.outbox.insert("now", "t", key, b"v", flaw="its header is no JSON")
    world.outbox.end("now")
    world.commit(("k", "behind"), ("", "no key"))
    world.run(lambda: world.tables.offset == 4)
    assert (world.sent(), sorted(world.tables.exceeded), sorted(world.tables.missing)) == (["no key"], [1, 2], [3])
    assert "malformed: its header is no JSON" in world.tables.exceeded[1][1]


def test_a_topic_that_is_closed_waits_without_attempts_and_all_others_go_on() -> None:
    world = World()
    world.broker.unavailable.add("closed")
    world.commit(("k", "1"), ("k", "2"), topic="closed")
    world.commit(("k", "3"))
    world.later[30.0] = world.broker.unavailable.clear
    world.run(lambda: world.now > 20.0)
    assert world.sent() == ["3"]
    assert {event.retry_count for event in world.tables.missing.values()} == {0}
    world.run()
    assert world.sent() == ["3", "1", "2"]


@pytest.mark.parametrize("released_at", [23 + tick / 10 for tick in range(20)])
def test_a_key_that_is_released_while_its_topic_waits_goes_in_order(released_at: float) -> None:
    """Row 1 is given up, 2 waits for it, 3 for the topic, which opens again at the moment of the release."""
    world = World()
    good: list[bool] = []
    world.refuses = lambda row: row.value == b"1" and not good
    world.commit(("k", "1"), ("k", "2"))

    def close() -> None:
        world.broker.unavailable.add("t")
        world.commit(("other", "0"), ("k", "3"))

    def release() -> None:
        good.append(True)
        world.broker.unavailable.clear()
        world.tables.retry(1)

    world.later = {20.0: close, released_at: release}
    world.run()
    assert [value for value in world.sent() if value != "0"] == ["1", "2", "3"]


def test_a_large_gap_is_crossed_once_no_open_transaction_can_bring_a_row_of_it() -> None:
    world = World()
    world.outbox.insert("late", "t", b"k", b"late")
    skip_ids(world, 1_000_000)
    world.commit(("k", "far"))
    world.later[5.0] = lambda: world.outbox.end("late")
    world.run(lambda: world.now > 4.0)
    assert (world.sent(), world.tables.offset, world.tables.missing) == ([], 0, {})
    world.run()
    assert (world.sent(), world.tables.offset) == (["late", "far"], 1_000_001)


def skip_ids(world: World, last: int) -> None:
    world.outbox._table.last_id = last  # as a sequence that was set ahead


def test_a_person_puts_an_id_into_missing_and_it_is_sent_again() -> None:
    world = World()
    world.commit(("k", "1"))
    world.run()
    world.tables.missing[1] = MissingEvent(1)
    world.commit(("k", "2"))
    world.run(lambda: world.is_done() and world.now > 5.0)
    assert world.sent() == ["1", "2"], "the last round is known to be published; it takes one more"
    world.tables.missing[1] = MissingEvent(1)
    world.run()
    assert world.sent() == ["1", "2", "1"]
