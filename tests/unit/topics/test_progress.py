"""`inorder topics status` says where a switch stands and what to do next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inorder.model.errors import PermanentError
from inorder.topics.generations import Generation, Phase, Target, TopicState, decode, encode
from inorder.topics.switch import Insight, behind, next_action

ZERO = Generation(0, "orders", 2, ends=(3, 4))
DONE = TopicState("orders", (ZERO, Generation(1, "orders.g1", 4)), epoch=4)
CLOSING = TopicState("orders", (Generation(0, "orders", 2),), Phase.CLOSING, Target("orders.g1", 4), epoch=2)
PREPARING = replace(CLOSING, phase=Phase.PREPARING, epoch=1)
APPLIED = {"upsert:a": {"orders": {0: 3, 1: 4}}}
HALF = {"upsert:a": {"orders": {0: 3, 1: 4}}, "upsert:b": {"orders": {0: 1}}}


@pytest.mark.parametrize(
    ("state", "insight", "words"),
    [
        (PREPARING, Insight(1), "is in phase preparing: run `inorder topics failover orders` to complete it"),
        (CLOSING, Insight(2), "Messages of the topic wait meanwhile."),
        (DONE, Insight(3), "publishers without the database may not know"),
        (DONE, Insight(4, {0: 1}), "written behind the ends of 'orders'"),
        (DONE, Insight(4, {0: 0}, HALF), "Nothing: upsert:b still reads the previous generation."),
    ],
)
def test_the_next_act_is_told(state: TopicState, insight: Insight, words: str) -> None:
    assert words in next_action(state, insight)


def test_where_nothing_is_left_nothing_is_said() -> None:
    assert next_action(DONE, Insight(4, {0: 0}, APPLIED)) == ""
    assert "wait meanwhile" not in next_action(PREPARING, Insight(1))


def test_pipelines_that_are_behind_are_named_with_how_far() -> None:
    assert behind(DONE, Insight(4, {}, HALF)) == {"upsert:b": 6}


@pytest.mark.parametrize("state", [DONE, CLOSING, PREPARING])
def test_a_state_survives_being_written_down(state: TopicState) -> None:
    assert decode(encode(state)) == state
    assert decode(encode(state).encode()) == state


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"topic": "orders", "generations": [{"more": 1}]}'])
def test_what_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(PermanentError, match="cannot be decoded"):
        decode(text)
