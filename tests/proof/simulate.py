"""Runs simulations: `python -m tests.proof.simulate [relay|slice|all] [--seeds N] [--seed K]`, or `make simulate`.

A seed that breaks a guarantee is printed with the command that shows it again, with the fewest transactions and faults
that still break it. Everything follows from the seed, so the command shows the same run on every machine.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from tests.proof import relay, slices
from tests.proof.results import read, record, today
from tests.proof.scheduler import Outcome

KINDS = ("relay", "slice")
CHUNK = 200


class Result(NamedTuple):
    """What became of one seed."""

    kind: str
    seed: int
    effects: int
    faults: int
    error: str
    """What was broken, or empty."""


def run_seed(kind: str, seed: int, *, size: int | None = None, most: int | None = None) -> Result:
    """One run. Seeds differ in their kind of trouble too: a database that goes back, a topic that is created again."""
    try:
        found: Outcome
        if kind == "relay":
            found = _run_relay(seed, size or 4 + seed % 5, 16 if most is None else most)
        else:
            hazards = slices.Hazards(most=10 if most is None else most, switches=seed % 3 != 2)
            found = slices.simulate(seed, hazards, drivers=1 + seed % 3, records=size or 8 + seed % 9)
    except Exception as error:  # noqa: BLE001 - whatever a run raises is its verdict
        return Result(kind, seed, 0, 0, f"{type(error).__name__}: {error}")
    return Result(kind, seed, found.effects, found.faults, "" if found.holds else str(found.verdict))


def _run_relay(seed: int, size: int, most: int) -> Outcome:
    """Owners that take over from each other; a database that goes back; or one owner whose requests arrive late."""
    if seed % 4 == 1:
        late = relay.Faults(most, rate=0.02, kills=0.005, freezes=0.0, repeats=0.5)
        return relay.simulate(seed, late, owners=1, transactions=size, batch_size=1)
    faults = relay.Faults(most, goes_back=0.02 if seed % 4 == 3 else 0.0)
    return relay.simulate(seed, faults, owners=2 + seed % 2, transactions=size)


def shrink(kind: str, seed: int) -> tuple[str, Result]:
    """The command that shows a seed again, in its smallest form."""
    options, broken = "", run_seed(kind, seed)
    for size in range(1, 20):
        for most in range(17):
            found = run_seed(kind, seed, size=size, most=most)
            if found.error:
                return f"python -m tests.proof.simulate {kind} --seed {seed} --size {size} --most {most}", found
    return f"python -m tests.proof.simulate {kind} --seed {seed}{options}", broken


def _chunk(kind: str, first: int, count: int) -> list[Result]:
    logging.disable(logging.CRITICAL)
    return [run_seed(kind, seed) for seed in range(first, first + count)]


def _results(kinds: Sequence[str], first: int, seeds: int) -> Iterator[Result]:
    with ProcessPoolExecutor(2) as pool:
        chunks = [
            pool.submit(_chunk, kind, begin, min(CHUNK, first + seeds - begin))
            for begin in range(first, first + seeds, CHUNK)
            for kind in kinds
        ]
        for chunk in chunks:
            yield from chunk.result()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.simulate")
    parser.add_argument("kind", nargs="?", default="all", choices=[*KINDS, "all"])
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--size", type=int, help="transactions of publishers, or records")
    parser.add_argument("--most", type=int, help="faults")
    options = parser.parse_args(arguments)
    kinds = KINDS if options.kind == "all" else (options.kind,)
    if options.seed is not None:
        found = [run_seed(kind, options.seed, size=options.size, most=options.most) for kind in kinds]
        print(*found, sep="\n")  # noqa: T201
        return int(any(one.error for one in found))
    return _run_many(kinds, options.first, options.seeds)


def _run_many(kinds: Sequence[str], first: int, seeds: int) -> int:
    sums = {kind: {"seeds": 0, "effects": 0, "faults": 0, "violations": 0} for kind in kinds}
    for one in _results(kinds, first, seeds):
        numbers = sums[one.kind]
        for name, more in (("seeds", 1), ("effects", one.effects), ("faults", one.faults)):
            numbers[name] += more
        if one.error:
            numbers["violations"] += 1
            command, found = shrink(one.kind, one.seed)
            print(f"{one.kind}, seed {one.seed}: {found.error}\n  again: {command}", flush=True)  # noqa: T201
    print(sums)  # noqa: T201
    failed = any(one["violations"] for one in sums.values())
    known = {kind: one for kind, one in read().get("simulation", {}).items() if kind in KINDS}
    if not failed and all(one["seeds"] >= known.get(kind, {"seeds": 0})["seeds"] for kind, one in sums.items()):
        record("simulation", merge(known, sums, today()))
    return int(failed)


def merge(known: Mapping[str, Any], sums: Mapping[str, Mapping[str, int]], date: str) -> dict[str, Any]:
    """What is known of each kind, with the date of its run; as a whole it is as old as the oldest."""
    found = {**known, **{kind: {**one, "date": date} for kind, one in sums.items()}}
    return {"date": min(one["date"] for one in found.values()), **found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
