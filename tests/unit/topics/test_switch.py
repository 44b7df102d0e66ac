"""What to do next follows from the state and from what is seen, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inorder.model.errors import ConfigurationError
from inorder.topics.generations import Generation, Phase, Target, TopicState
from inorder.topics.switch import (
    AwaitTransactions,
    Commit,
    Done,
    EndWriters,
    MakeTopic,
    Observed,
    Step,
    Wanted,
    WriteMirror,
    begin,
    cancel,
    complete,
    describe,
    next_step,
    target_of,
)

FIRST = Generation(0, "orders", 4)
TARGET = Target("orders.g1", 8)
PREPARING = TopicState("orders", (FIRST,), Phase.PREPARING, TARGET, epoch=1)
CLOSING = replace(PREPARING, phase=Phase.CLOSING, epoch=2)
MEASURING = replace(PREPARING, phase=Phase.MEASURING, epoch=3)
ENDS = (3, 0, 7, 1)
SWITCHED = TopicState("orders", (replace(FIRST, ends=ENDS), Generation(1, "orders.g1", 8)), epoch=4)


@pytest.mark.parametrize(
    ("state", "observed", "step"),
    [
        (PREPARING, Observed(0), WriteMirror()),
        (PREPARING, Observed(1), MakeTopic(TARGET, like="orders")),
        (PREPARING, Observed(1, target_partitions=8), Commit(CLOSING)),
        (CLOSING, Observed(1, writers_are_gone=True), WriteMirror()),
        (CLOSING, Observed(2), EndWriters()),
        (CLOSING, Observed(2, writers_are_gone=True), Commit(MEASURING)),
        (MEASURING, Observed(2, ends=ENDS), WriteMirror()),
        (MEASURING, Observed(3), AwaitTransactions()),
        (MEASURING, Observed(3, ends=ENDS), Commit(SWITCHED)),
        (SWITCHED, Observed(3), WriteMirror()),
        (SWITCHED, Observed(4), Done()),
    ],
)
def test_each_phase_has_its_steps(state: TopicState, observed: Observed, step: Step) -> None:
    assert next_step(state, observed) == step


@pytest.mark.parametrize(
    ("observed", "found"),
    [
        (Observed(1, target_partitions=4), "has 4 partitions"),
        (Observed(1, target_partitions=8, target_is_empty=False), "holds records"),
    ],
)
def test_a_target_that_is_there_and_does_not_fit_is_refused(observed: Observed, found: str) -> None:
    with pytest.raises(ConfigurationError, match=found) as refused:
        next_step(PREPARING, observed)
    assert "--cancel" in refused.value.hint


@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        (Wanted(), Target("orders.g1", 4)),
        (Wanted(8), Target("orders.g1", 8)),
        (Wanted(topic="orders.backup"), Target("orders.backup", 4)),
        (Wanted(8, "orders.backup"), Target("orders.backup", 8)),
    ],
)
def test_the_first_switch_begins_from_the_topic_itself(wanted: Wanted, target: Target) -> None:
    begun = begin("orders", None, 4, wanted)
    assert begun == TopicState("orders", (FIRST,), Phase.PREPARING, target, epoch=1)


def test_the_next_switch_begins_from_the_last_generation() -> None:
    begun = begin("orders", SWITCHED, 8, Wanted(16))
    assert begun == replace(SWITCHED, phase=Phase.PREPARING, target=Target("orders.g2", 16), epoch=5)


@pytest.mark.parametrize("wanted", [Wanted(8), Wanted(topic="orders.g1"), Wanted(8, "orders.g1")])
def test_a_switch_that_has_been_made_is_not_made_again(wanted: Wanted) -> None:
    assert begin("orders", SWITCHED, 8, wanted) is None


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(8), Wanted(topic="orders.g1")])
def test_a_switch_that_is_under_way_is_resumed(wanted: Wanted) -> None:
    assert begin("orders", CLOSING, 4, wanted) is None


@pytest.mark.parametrize("wanted", [Wanted(16), Wanted(topic="orders.backup"), Wanted(8, "orders.backup")])
def test_another_switch_meanwhile_is_refused_and_names_both(wanted: Wanted) -> None:
    with pytest.raises(ConfigurationError, match=r"switched to 'orders.g1' with 8 partitions, not to") as refused:
        begin("orders", CLOSING, 4, wanted)
    assert "--cancel" in refused.value.hint


def test_no_generation_is_a_topic_of_inorder_s_own() -> None:
    with pytest.raises(ConfigurationError, match=r"'inorder\.orders\.marker' is reserved"):
        begin("orders", SWITCHED, 8, Wanted(16, "inorder.orders.marker"))


@pytest.mark.parametrize("name", ["orders", "orders.g1"])
def test_a_kafka_topic_serves_one_generation_only(name: str) -> None:
    with pytest.raises(ConfigurationError, match="was a generation of topic 'orders' before"):
        begin("orders", SWITCHED, 8, Wanted(16, name))


@pytest.mark.parametrize("state", [PREPARING, CLOSING, MEASURING])
def test_a_switch_may_be_given_up_until_its_last_commit(state: TopicState) -> None:
    assert cancel(state) == TopicState("orders", (FIRST,), epoch=state.epoch + 1)


def test_nothing_is_given_up_behind_the_last_commit() -> None:
    assert cancel(SWITCHED) is None
    with pytest.raises(ConfigurationError, match="not being switched"):
        target_of(SWITCHED)


@pytest.mark.parametrize(
    ("state", "takes"), [(PREPARING, True), (CLOSING, False), (MEASURING, False), (SWITCHED, True)]
)
def test_a_topic_takes_records_but_between_closing_and_the_last_commit(state: TopicState, takes: bool) -> None:
    assert state.takes_records is takes


def test_the_last_commit_closes_one_generation_and_opens_the_next() -> None:
    assert complete(MEASURING, ENDS) == SWITCHED
    assert [generation.is_closed for generation in SWITCHED.generations] == [True, False]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (MakeTopic(TARGET, "orders"), "Creating topic 'orders.g1' with 8 partitions."),
        (Commit(CLOSING), "Now closing."),
        (Commit(SWITCHED), "Now generation 1."),
        (WriteMirror(), ""),
    ],
)
def test_steps_are_told_to_whoever_waits(step: Step, text: str) -> None:
    assert describe(step) == text
