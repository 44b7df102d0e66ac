"""The head cache counts the results of look-ups, and measures its size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.journal.reading.head_cache import Ahead, HeadCache, HeadCacheLimits, HeadCacheReading, Known
from inorder.model.deadline import Deadline
from tests.conftest import Eventually
from tests.unit.journal.hearing import Heard
from tests.unit.journal.world import KEY, World

PATIENT = HeadCacheLimits(wait=10.0, remove_interval=0.005)


class Place:
    """A log, a store, and a measured head cache."""

    def __init__(self, limits: HeadCacheLimits = PATIENT) -> None:
        self.heard = Heard()
        self.world = World()
        self.heads = HeadCache(self.world.log, self.world.store, time.monotonic, limits, self.heard)

    def find(self, offset: int, partition: int = 0) -> Ahead | Known | None:
        return self.heads.find(KEY, partition, offset, Deadline(time.monotonic, 20, "test"))

    def found(self, result: str, *whens: str) -> int:
        return sum(self.heard.times["head_cache_find", KEY.topic, result, when] for when in whens or ("now", "later"))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.heads.close()


def test_known_and_replicated_journals_are_told_apart(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    assert isinstance(place.find(0), Known)
    assert (place.found("known"), place.found("ahead")) == (1, 0)
    place.world.replicate()
    eventually(lambda: place.find(0) == Ahead())
    assert place.found("ahead", "now") >= 1


def test_a_question_that_waits_is_told_as_later(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    place.find(0)
    assert isinstance(place.find(0), Known)
    assert place.found("known", "now") >= 1
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(place.find, 1)
        eventually(lambda: place.heads.readings()[KEY.topic].waiting == 1)
        place.world.append(2)
        assert isinstance(answer.result(20), Known)
    assert place.found("known", "later") >= 1


def test_a_question_without_an_answer_says_why() -> None:
    impatient = Place(HeadCacheLimits(wait=0.01))
    impatient.world.append(1)
    assert impatient.find(99) is None
    assert impatient.found("late", "later") + impatient.found("absent") == 1
    assert impatient.find(0, partition=7) is None
    assert impatient.found("absent") >= 1
    impatient.heads.close()


def test_what_was_forgotten_is_told_as_limited(eventually: Eventually) -> None:
    small = Place(HeadCacheLimits(wait=10.0, remove_interval=0.005, max_journals=1, drop_upon_limit=1.0))
    small.world.append(1)
    small.find(0)
    for id in ("b", "c"):
        small.world.other(id).purge()
    eventually(lambda: small.find(2) is None)
    assert small.found("limited") == 1
    small.heads.close()


def test_it_tells_how_much_it_holds_and_how_far_it_came(place: Place, eventually: Eventually) -> None:
    place.world.append(1)
    place.find(0)
    assert place.heads.readings() == {KEY.topic: HeadCacheReading(journals=1, waiting=0)}
    place.world.append(2)
    place.find(1)
    numbers = place.heard.numbers
    eventually(lambda: numbers["head_cache_offsets", KEY.topic, "kafka"] == 1)
    assert place.heard.times["head_cache_record_age", KEY.topic] >= 1
    place.world.replicate(behind=1)
    eventually(lambda: place.world.store.offset(KEY.topic, 0) == 0)
    place.world.replicate()
    eventually(lambda: place.heads.readings()[KEY.topic].journals == 0)


def test_after_the_end_it_holds_nothing(place: Place) -> None:
    place.world.append(1)
    place.find(0)
    place.heads.close()
    assert place.heads.readings() == {}
