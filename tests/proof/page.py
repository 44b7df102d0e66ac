"""Writes `docs/proof.md` from what the commands have recorded: `python -m tests.proof.page`; no figure is typed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.injections import tabulate
from tests.proof.models import FOLDER, models
from tests.proof.results import FILE, read

PAGE = FILE.with_name("proof.md")

OPENING = """# Proof

How "exactly once and in order" is shown, besides the tests that [Guarantees](guarantees.md) names: models of the
protocols that a checker explores completely, simulations in which everything fails, faults of real servers under load,
and deliberate defects that must be noticed. The commands below write their results to `docs/proof.json`;
`python -m tests.proof.page` makes this page from it. Each needs what `make setup` provides, and nothing else.
"""

ESSAYS = {
    "Drain": ("outbox rows to Kafka records", "src/inorder/relay/drain.py"),
    "Slice": ("records to rows of a table", "src/inorder/pipeline/slice.py"),
    "Journal": ("reads of a journal while replication lags", "src/inorder/journal/reading/reader.py"),
}

LIMITS = """## Known limits

- A model is checked within its bounds, and says nothing beyond them. The text at the head of each model names what it
  leaves out.
- Models and simulated servers are our understanding of PostgreSQL, Kafka and its client. Whether these behave so is
  the subject of the contract suites and of the fault tests, which run with real servers.
- The simulation runs the real loop, term, marker, purge queue, scan, shard log and fenced producer of strategy
  `drain`, and the real slice and gate. It does not run the engines, the other strategies, resharding, parking of
  refused records, or SQL.
- Brokers are assumed to keep what they acknowledged: topics and the marker topic with a replication factor above 1
  and `min.insync.replicas` above 1, no unclean leader election, and `transaction.partition.verification.enable` on,
  its default. A broker that completes a commit without writing it to all partitions, as a single node of Kafka 4.3.1
  does about once in a hundred kills, stalls the relay and its readers; a person must act
  ([Operations](operations.md#a-commit-that-a-broker-did-not-finish)).
- Readers with `read_uncommitted` see records of aborted transactions, and are promised nothing.
- Programs other than the relay that write to the marker topic, delete rows of the outbox, or write to the tables of a
  pipeline are noticed where [Guarantees](guarantees.md) says so, and nowhere else.
- What [Guarantees](guarantees.md#what-they-require-of-you) requires is assumed: messages are written after their rows
  are locked, a key has one partition, a failover fences the old primary, one group has one outbox, the marker topic is
  not deleted, topics of journals are not created again, nothing shuffles between Kafka and a table. A database that
  loses commits brings rows back, which are published once more unless the last marker names them.
- A fault that is injected into a process or a network is not a broken disk, a wrong memory bit or a clock that all
  processes of a machine share. Each server of the fault tests is one node: nothing is shown about the replication
  inside a cluster of brokers. Clock steps are injected into the relay's own clock only.
- `inorder verify run` sees its own events of one run; it shows a violation, never its absence elsewhere.
- A mutant shows that a test notices one defect. Defects that no one thought of are not in the list.
- The share of mutants caught is of a list from which some were removed after they were tried, so it is no kill rate of
  the first attempt. No quick test catches: an owner that begins with its second transactional id (only TLC finds it),
  and a headless journal that is shown. Two ended only at the time limit: a fenced owner that returns without an
  election, and a purge that is not seen in the middle of its replication. Two were judged by reading to change nothing:
  an unknown commit taken for aborted, and a journal that ends at the number of its last append.
- Three mutants of the shard log are caught only by seeds that were searched for with the mutant in place
  (`test_seeds_that_show_a_mutant`). In 140 to 150 random seeds each of these showed in one or two.
- Most mutants were recorded with an earlier form of the simulation, before its processes could be paused.
"""


def render(results: Mapping[str, Any]) -> str:
    parts = [OPENING, *_models(results.get("models")), *_simulation(results.get("simulation"))]
    return "\n".join([*parts, *_faults(results.get("faults")), *_mutants(results.get("mutants")), LIMITS])


def _models(found: Mapping[str, Any] | None) -> Iterator[str]:
    yield "## Models\n"
    yield "TLA+ in `models/`, checked by TLC. Repeat: `make models`; the small bounds run with `make test-all`.\n"
    if found is None:
        yield "Not recorded yet.\n"
        return
    good = [one for one in found["checks"] if one["violates"] is None]
    yield f"Recorded on {found['date']}, {found['size']} bounds, no violation:\n"
    yield "| model | of | bounds | distinct states | longest path |\n|---|---|---|---|---|"
    for one in good:
        title, essay = ESSAYS[one["model"]]
        bounds = ", ".join(f"{name} {value}" for name, value in sorted(one["bounds"].items()))
        counts = f"{one['states']:,} | {one['depth']}"
        yield f"| `{one['model']}`, {one['name']} | {title} (`{essay}`) | {bounds} | {counts} |"
    yield "\nWhat each model shows, by the name of its formula:\n"
    for model in models():
        for claim, formula in _claims(model):
            yield f"- `{model}.{formula}`: {claim}"
    yield "\nEvery defect that is put into a model is found:\n"
    yield "| model | defect | violates |\n|---|---|---|"
    for one in found["checks"]:
        if one["violates"] is not None:
            yield f"| `{one['model']}` | {one['why']} | `{one['violates']}` |"
    yield ""


def _claims(model: str) -> Iterator[tuple[str, str]]:
    """The guarantees that a model names, and the formula below them."""
    claims = list[str]()
    for line in (FOLDER / f"{model}.tla").read_text("utf-8").splitlines():
        if line.startswith("\\* guarantee: "):
            claims.append(line.removeprefix("\\* guarantee: "))
        elif claims and (formula := re.match(r"(\w+) ==", line)):
            yield " ".join(claim if claim.endswith(".") else f"{claim} …" for claim in claims), formula[1]
            claims = []


def _simulation(found: Mapping[str, Any] | None) -> Iterator[str]:
    yield "## Simulation\n"
    yield (
        "The real code over a simulated database, broker, clock and scheduler. Every effect may fail, be\n"
        "late, be repeated, lose its answer or be the last of its process; one seed decides all of it. All\n"
        "single and double crash points of a short run, 2,000 seeds of the relay and 8,000 of the slice are\n"
        "tried with `make test` and `make test-all`. Repeat: `make simulate SEEDS=10000`; a seed that breaks\n"
        "something prints its command.\n"
    )
    if found is None:
        yield "Not recorded yet.\n"
        return
    yield "| simulated | recorded on | seeds | effects | faults injected | violations |\n|---|---|---|---|---|---|"
    for kind in sorted(kind for kind in found if kind != "date"):
        one = found[kind]
        counts = f"{one['seeds']:,} | {one['effects']:,} | {one['faults']:,} | {one['violations']}"
        yield f"| {kind} | {one['date']} | {counts} |"
    yield ""


def _faults(found: Mapping[str, Any] | None) -> Iterator[str]:
    yield "## Faults\n"
    yield (
        "Real servers and real processes under load, killed, paused, cut off or filled up; afterwards a checker that\n"
        "shares no code with the product compares what was committed with what arrived. Repeat: `make fault`.\n"
        "Recovery is the time until work that was committed afterwards had arrived, with the time for which a test\n"
        "keeps a server away on purpose. A test that fails counts as a violation of each kind that it injected.\n"
        "`inorder verify run` checks an installation of yours in the same way.\n"
    )
    if found is None:
        yield "Not recorded yet.\n"
        return
    tests = found["tests"].values()
    every = tabulate(tests)
    total, violations = (sum(one[name] for one in every) for name in ("count", "violations"))
    outcomes = Counter(one["outcome"] for one in tests)
    yield (
        f"{total:,} injections in {outcomes['passed']} tests that passed and {outcomes['failed']} that failed, "
        f"{violations} violations. Each test has the result of its last run; the oldest is of {found['date']}.\n"
    )
    yield "| fault | count | recovery, median | longest | violations |\n|---|---|---|---|---|"
    for one in every:
        median, longest = (_seconds(one[name]) for name in ("recovery_median", "recovery_longest"))
        yield f"| {one['kind']} | {one['count']:,} | {median} | {longest} | {one['violations']} |"
    yield ""


def _seconds(found: float | None) -> str:
    return "not measured" if found is None else f"{found:.1f} s"


def _mutants(found: Mapping[str, Any] | None) -> Iterator[str]:
    yield "## Mutants\n"
    yield "Deliberate defects, applied one at a time to a copy of the code. Repeat: `make mutants`.\n"
    if found is None:
        yield "Not recorded yet.\n"
        return
    every = found["mutants"]
    caught = [one for one in every if one["caught_by"] is not None]
    yield (
        f"{len(caught)} of {len(every)} are caught by tests of `make test`. "
        f"The oldest of these results was recorded on {found['date']}.\n"
    )
    yield "| file | mutants | caught |\n|---|---|---|"
    total, killed = Counter(one["file"] for one in every), Counter(one["file"] for one in caught)
    yield from (f"| `{file}` | {total[file]} | {killed[file]} |" for file in sorted(total))
    yield "\n| defect | it would mean | caught by |\n|---|---|---|"
    for one in every:
        yield f"| {one['name']} | {one['why']} | {_shown(one['caught_by'])} |"
    yield ""


def _shown(caught_by: str | None) -> str:
    return "**nothing**" if caught_by is None else f"`{caught_by.rpartition('::')[2] or caught_by}`"


if __name__ == "__main__":
    PAGE.write_text(render(read()), "utf-8")
