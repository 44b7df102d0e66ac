"""Missing topics are made, settings are set, and no partition is ever added in place or taken away."""

from __future__ import annotations

import pytest

from inorder.topics.desired import (
    ChangeSettings,
    CreateTopic,
    DesiredTopic,
    FoundTopic,
    KeepPartitions,
    SwitchNeeded,
    TopicAction,
    plan_actions,
)
from inorder.topics.generations import Target

WANTED = DesiredTopic("orders", 8, 3, {"retention.ms": "1000"})
KEPT = {"retention.ms": "1000", "segment.ms": "5"}


@pytest.mark.parametrize(
    ("found", "planned"),
    [
        (None, [CreateTopic(Target("orders.g1", 8), 3, {"retention.ms": "1000"})]),
        (FoundTopic("orders.g1", 8, KEPT), []),
        (FoundTopic("orders.g1", 8, {"retention.ms": "9"}), [ChangeSettings("orders.g1", {"retention.ms": "1000"})]),
        (FoundTopic("orders.g1", 4, KEPT), [SwitchNeeded("orders", 4, 8)]),
        (FoundTopic("orders.g1", 9, KEPT), [KeepPartitions("orders", 9, 8)]),
        (
            FoundTopic("orders.g1", 4),
            [ChangeSettings("orders.g1", {"retention.ms": "1000"}), SwitchNeeded("orders", 4, 8)],
        ),
    ],
)
def test_a_plan_is_the_difference(found: FoundTopic | None, planned: list[TopicAction]) -> None:
    assert list(plan_actions(WANTED, found, "orders.g1")) == planned


def test_what_is_not_said_may_be_anything() -> None:
    assert list(plan_actions(DesiredTopic("orders"), FoundTopic("orders", 7, KEPT), "orders")) == []
    assert list(plan_actions(DesiredTopic("orders"), None, "orders")) == [CreateTopic(Target("orders", 1), None, {})]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (SwitchNeeded("orders", 4, 8), "`inorder topics failover orders --partitions 8`"),
        (KeepPartitions("orders", 9, 8), "partitions are never removed"),
        (CreateTopic(Target("orders", 8), None, {}), "create topic 'orders' with 8 partitions"),
        (ChangeSettings("orders", {"retention.ms": "1"}), "set retention.ms=1 of topic 'orders'"),
    ],
)
def test_a_plan_is_told_with_the_next_command(action: TopicAction, words: str) -> None:
    assert words in str(action)


def test_programs_read_the_same_kinds_whatever_the_classes_are_called() -> None:
    kinds = [CreateTopic.kind, ChangeSettings.kind, SwitchNeeded.kind, KeepPartitions.kind]
    assert kinds == ["MakeIt", "SetIt", "SwitchIt", "LeaveIt"]
