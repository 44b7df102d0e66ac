"""The demo's load is decided by its seed alone, and has a bit of everything in it."""

from __future__ import annotations

import pytest

from inorder.demo.load import KEYS, LATE_KEYS, PlannedUpdate, UpdateKind, body, plan_load


def test_the_same_seed_gives_the_same_load() -> None:
    assert plan_load(3000, 7) == plan_load(3000, 7)
    assert plan_load(3000, 7) != plan_load(3000, 8)


@pytest.mark.parametrize("events", [1, 8, 9, 100, 20_000])
def test_a_load_has_exactly_as_many_updates_as_were_asked_for(events: int) -> None:
    assert sum(len(plan.updates) for plan in plan_load(events, 1)) == events


def test_some_roll_back_some_are_partial_some_invalid_and_some_late() -> None:
    plans = plan_load(5000, 1)
    kinds = {update.kind for plan in plans for update in plan.updates}
    assert kinds == set(UpdateKind)
    assert {plan.commits for plan in plans} == {True, False}
    assert sum(plan.is_late for plan in plans) == LATE_KEYS


def test_locks_are_taken_in_the_order_of_keys_and_late_keys_belong_to_late_plans() -> None:
    for plan in plan_load(5000, 1):
        keys = [update.key for update in plan.updates]
        assert keys == sorted(set(keys))
        assert all((key > KEYS - LATE_KEYS) == plan.is_late for key in keys)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (UpdateKind.FULL, {"enabled": True, "data": "event 4 of key 9"}),
        (UpdateKind.ONLY_ENABLED, {"enabled": True}),
        (UpdateKind.ONLY_DATA, {"data": "event 4 of key 9"}),
        (UpdateKind.INVALID, {"enabled": "perhaps", "data": "event 4 of key 9"}),
    ],
)
def test_a_message_carries_its_key_its_place_and_what_its_kind_says(
    kind: UpdateKind, fields: dict[str, object]
) -> None:
    assert body(PlannedUpdate(9, kind), 4) == {"id": 9, "place": 4, **fields}
