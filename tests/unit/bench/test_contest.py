"""Both sides have the same number of trials, and take turns at going first."""

from __future__ import annotations

from typing import Any, cast

import pytest

from inorder.bench.load import Load, Schedule
from inorder.bench.options import RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.relay import Contest
from inorder.bench.report import DrainTrial, LiveTrial
from tests.unit.bench.test_relay_report import carried, drained


class Side:
    """Records when it was called."""

    def __init__(self, name: str, asked: list[tuple[str, int]]) -> None:
        self.name = name
        self._asked = asked

    def drain(self, load: Load, number: int) -> DrainTrial:
        self._asked.append((self.name, number))
        return drained(float(load.rows), is_whole=number % 2 == 0)

    def live(self, number: int) -> LiveTrial:
        self._asked.append((self.name, number))
        return carried(1.0)


class Place:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def asked() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def contest(asked: list[tuple[str, int]], place: Place) -> Contest:
    options = RelayOptions(rows=10, schedule=Schedule(500, 30.0), repeats=3)
    return Contest(cast("BenchPlace", cast("Any", place)), Side("ours", asked), Side("peer", asked), options)


def test_sides_alternate_and_the_first_turn_changes_hands(contest: Contest, asked: list[tuple[str, int]]) -> None:
    case = contest.drain(Load(10, 2))
    assert [name for name, _ in asked] == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert (len(case.ours), len(case.peer)) == (3, 3)


def test_no_two_trials_share_a_topic(contest: Contest, asked: list[tuple[str, int]]) -> None:
    contest.drain(Load(10, 2))
    contest.live()
    numbers = [number for _, number in asked]
    assert len(set(numbers)) == len(numbers) == 12


def test_every_trial_is_told_as_it_ends(contest: Contest, place: Place) -> None:
    contest.drain(Load(10, 2, headers=1))
    contest.live()
    assert place.said[0] == "drain of 10, keys 2, headers 1: ours 10 a second (window)"
    assert place.said[6] == "live, 500 a second for 30 s: ours p50 1.0 ms, p99 1.0 ms"
