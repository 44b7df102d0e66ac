"""Simulated relays and drivers keep every guarantee, wherever they die and whatever fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof import relay, slices
from tests.proof.scheduler import Outcome
from tests.proof.simulate import run_seed
from tests.selection import few

SEEDS = {"relay": 40, "slice": 160}
"""In one test; a relay takes more steps."""
BLOCKS = 50
"""One in `make test`, the others in `make test-all`: 10,000 seeds in all."""


def relay_dies(*numbers: int) -> Outcome:
    faults = relay.Faults(rate=0, kills=0, freezes=0, repeats=0, dies_at=frozenset(numbers))
    return relay.simulate(1, faults, owners=1, transactions=1)


def driver_dies(*numbers: int) -> Outcome:
    hazards = slices.Hazards(rate=0, kills=0, lost_answers=0, dies_at=frozenset(numbers))
    return slices.simulate(1, hazards, drivers=1, records=8)


def test_a_run_follows_from_its_seed() -> None:
    assert run_seed("relay", 5) == run_seed("relay", 5)
    assert run_seed("slice", 5) == run_seed("slice", 5)


@pytest.mark.parametrize("block", few(range(BLOCKS), 0))
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


def find_pairs(dies: Callable[..., Outcome]) -> list[tuple[int, int]]:
    """Every effect at which a process can die, with every later one of the run that follows; that run is longer."""
    return [(first, second) for first in range(dies().effects) for second in range(first + 1, dies(first).effects)]


@pytest.mark.parametrize("dies", [relay_dies, driver_dies])
def test_two_deaths_reach_to_the_last_effect_after_the_first_one(dies: Callable[..., Outcome]) -> None:
    """Of a run that ends with the first death there is no second one."""
    pairs = find_pairs(dies)
    lasts = {first: dies(first).effects - 1 for first in range(dies().effects)}
    assert [(first, last) for first, last in lasts.items() if last > first and (first, last) not in pairs] == []
    assert max(second for _, second in pairs) >= dies().effects


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_a_relay_may_die_at_every_two_effects(part: int) -> None:
    assert [pair for pair in find_pairs(relay_dies)[part::4] if not relay_dies(*pair).holds] == []


@pytest.mark.full
def test_a_driver_may_die_at_every_two_effects() -> None:
    assert [pair for pair in find_pairs(driver_dies) if not driver_dies(*pair).holds] == []
