"""Missing topics are made, settings are set, and no partition is ever added in place or taken away."""

from __future__ import annotations

import pytest

from inorder.topics.failover import Action, Desired, Found, LeaveIt, MakeIt, SetIt, SwitchIt, actions
from inorder.topics.generations import Target

WANTED = Desired("orders", 8, 3, {"retention.ms": "1000"})
KEPT = {"retention.ms": "1000", "segment.ms": "5"}


@pytest.mark.parametrize(
    ("found", "planned"),
    [
        (None, [MakeIt(Target("orders.g1", 8), 3, {"retention.ms": "1000"})]),
        (Found("orders.g1", 8, KEPT), []),
        (Found("orders.g1", 8, {"retention.ms": "9"}), [SetIt("orders.g1", {"retention.ms": "1000"})]),
        (Found("orders.g1", 4, KEPT), [SwitchIt("orders", 4, 8)]),
        (Found("orders.g1", 9, KEPT), [LeaveIt("orders", 9, 8)]),
        (Found("orders.g1", 4), [SetIt("orders.g1", {"retention.ms": "1000"}), SwitchIt("orders", 4, 8)]),
    ],
)
def test_a_plan_is_the_difference(found: Found | None, planned: list[Action]) -> None:
    assert list(actions(WANTED, found, "orders.g1")) == planned


def test_what_is_not_said_may_be_anything() -> None:
    assert list(actions(Desired("orders"), Found("orders", 7, KEPT), "orders")) == []
    assert list(actions(Desired("orders"), None, "orders")) == [MakeIt(Target("orders", 1), None, {})]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (SwitchIt("orders", 4, 8), "`inorder topics failover orders --partitions 8`"),
        (LeaveIt("orders", 9, 8), "none is ever taken away"),
        (MakeIt(Target("orders", 8), None, {}), "make topic 'orders' with 8 partitions"),
        (SetIt("orders", {"retention.ms": "1"}), "set retention.ms=1 of topic 'orders'"),
    ],
)
def test_a_plan_is_told_with_the_next_command(action: Action, words: str) -> None:
    assert words in str(action)
