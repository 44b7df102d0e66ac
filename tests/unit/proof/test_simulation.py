"""Simulated relays and drivers keep every guarantee, wherever they die and whatever fails."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.proof import relay, slices
from tests.proof.scheduler import Outcome
from tests.proof.simulate import run_seed
from tests.selection import few

SEEDS = {"relay": 40, "slice": 160}
"""In one test; a relay takes more steps."""


def relay_dies(*numbers: int) -> Outcome:
    faults = relay.Faults(rate=0, kills=0, freezes=0, repeats=0, dies_at=frozenset(numbers))
    return relay.simulate(1, faults, owners=1, transactions=1)


def driver_dies(*numbers: int) -> Outcome:
    hazards = slices.Hazards(rate=0, kills=0, lost_answers=0, dies_at=frozenset(numbers))
    return slices.simulate(1, hazards, drivers=1, records=8)


def test_a_run_follows_from_its_seed() -> None:
    assert run_seed("relay", 5) == run_seed("relay", 5)
    assert run_seed("slice", 5) == run_seed("slice", 5)


@pytest.mark.parametrize("block", few(range(20), 0))
@pytest.mark.parametrize("kind", ["relay", "slice"])
def test_every_effect_may_fail_be_late_be_repeated_or_be_the_last(kind: str, block: int) -> None:
    count = SEEDS[kind]
    found = [run_seed(kind, seed) for seed in range(block * count, (block + 1) * count)]
    again = "python -m tests.proof.simulate"
    assert [f"{again} {one.kind} --seed {one.seed}: {one.error}" for one in found if one.error] == []
    assert sum(one.faults for one in found) > count


@pytest.mark.parametrize("seed", [41, 44, 79, 161])
def test_seeds_that_show_a_mutant(seed: int) -> None:
    """Rare meetings of owners and late requests, each of which breaks a guarantee with a defect in the shard log."""
    assert run_seed("relay", seed).error == ""


def test_a_relay_may_die_on_either_side_of_every_effect() -> None:
    whole = relay_dies()
    assert whole.holds
    assert whole.effects > 20
    assert [number for number in range(whole.effects) if not relay_dies(number).holds] == []


def test_a_driver_may_die_on_either_side_of_every_effect() -> None:
    whole = driver_dies()
    assert whole.holds
    assert whole.effects > 10
    assert [number for number in range(whole.effects) if not driver_dies(number).holds] == []


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_a_relay_may_die_at_every_two_effects(part: int) -> None:
    pairs = list(combinations(range(relay_dies().effects + 20), 2))[part::4]
    assert [pair for pair in pairs if not relay_dies(*pair).holds] == []


@pytest.mark.full
def test_a_driver_may_die_at_every_two_effects() -> None:
    pairs = combinations(range(driver_dies().effects + 10), 2)
    assert [pair for pair in pairs if not driver_dies(*pair).holds] == []
