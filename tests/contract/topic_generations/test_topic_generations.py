"""The state of a topic changes by compare-and-set, in every database and in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from inorder.topics.generations import Generation, Phase, Target, TopicGenerations, TopicState
from inorder.topics.stores.generations import SqlTopicGenerations
from tests.fakes.log import MemoryGenerations
from tests.selection import few

BEGUN = TopicState("orders", (Generation(0, "orders", 4),), Phase.PREPARING, Target("orders.g1", 8), epoch=1)
CLOSING = replace(BEGUN, phase=Phase.CLOSING, epoch=2)
DONE = TopicState("orders", (Generation(0, "orders", 4, (1, 2, 3, 4)), Generation(1, "orders.g1", 8)), epoch=3)
OPERATORS = 6

Opens = Callable[[], TopicGenerations]


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite", "memory"], "mariadb", "sqlite", "memory"))
def opens(request: pytest.FixtureRequest) -> Opens:
    """Opens the same authority as often as a test has operators."""
    if request.param == "memory":
        shared = MemoryGenerations()
        return lambda: shared
    url = request.getfixturevalue(f"{request.param}_url")
    database_of = request.getfixturevalue("database_of")
    return lambda: SqlTopicGenerations(database_of(url))


@pytest.fixture
def generations(opens: Opens) -> TopicGenerations:
    return opens()


def test_a_topic_that_was_never_switched_has_no_state(generations: TopicGenerations) -> None:
    assert generations.read("orders") is None
    assert list(generations.read_all()) == []


def test_every_state_is_read_back_as_it_was_written(generations: TopicGenerations) -> None:
    for state in (BEGUN, CLOSING, DONE):
        assert generations.replace(state)
        assert generations.read("orders") == state


def test_a_state_replaces_only_the_one_before_it(generations: TopicGenerations) -> None:
    assert not generations.replace(CLOSING), "nothing is there"
    assert generations.replace(BEGUN)
    assert not generations.replace(BEGUN), "the answer was lost, and it is written again"
    assert not generations.replace(DONE), "one is left out"
    assert generations.read("orders") == BEGUN


def test_topics_are_apart_and_told_by_their_names(generations: TopicGenerations, opens: Opens) -> None:
    for topic in ("payments", "orders", "Orders"):
        assert generations.replace(replace(BEGUN, topic=topic))
    assert [state.topic for state in opens().read_all()] == ["Orders", "orders", "payments"]
    assert generations.read("ORDERS") is None, "names compare letter by letter"


def test_of_operators_at_once_one_takes_each_step(opens: Opens) -> None:
    together = threading.Barrier(OPERATORS)

    def change(state: TopicState) -> bool:
        mine = opens()
        together.wait()
        return mine.replace(state)

    for state in (BEGUN, CLOSING):
        with ThreadPoolExecutor(OPERATORS) as pool:
            assert sum(pool.map(change, [state] * OPERATORS)) == 1
