"""Checks the models in `models/` with TLC: `python -m tests.proof.models [small|large] [MODEL …]`, or `make models`.

A good model must be checked to the end, with at least as many states as `bounds.toml` says: a model that can do nothing
violates nothing. A defect must lead to a violation of the guarantee that it is about.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from inorder.embedded.jars import JarSet, fetch_set, find_java
from tests.proof.results import record

FOLDER = Path(__file__).parents[2] / "models"
SECONDS = {"small": 240, "large": 3600}
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Check:
    """One run of TLC."""

    model: str
    name: str
    bounds: Mapping[str, object]
    invariants: tuple[str, ...]
    properties: tuple[str, ...] = ()
    states: int = 0
    """Distinct states that must be found at least."""
    violates: str | None = None
    """What a defect violates."""
    why: str = ""

    @property
    def title(self) -> str:
        return f"{self.model}.{self.name}"

    def config(self) -> str:
        defects = "{}" if self.violates is None else f'{{"{self.name}"}}'
        constants = [f"  {name} = {value}" for name, value in {**self.bounds, "Defects": defects}.items()]
        lines = ["SPECIFICATION Spec", "CHECK_DEADLOCK FALSE", "CONSTANTS", *constants]
        lines += ["INVARIANTS " + " ".join(self.invariants)] if self.invariants else []
        lines += ["PROPERTIES " + " ".join(self.properties)] if self.properties else []
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What TLC found."""

    violated: str | None
    is_complete: bool
    states: int
    depth: int
    output: str

    def fault(self, check: Check) -> str | None:
        """Why this is not what it should be; None if it is."""
        if check.violates is not None:
            found = self.violated or ("nothing" if self.is_complete else "no verdict")
            return None if self.violated == check.violates else f"{check.title} violates {found}, not {check.violates}"
        if self.violated is not None or not self.is_complete:
            return f"{check.title} violates {self.violated or 'nothing, but TLC did not end'}:\n{self.output[-3000:]}"
        return None if self.states >= check.states else f"{check.title} has only {self.states} states"


@cache
def settings() -> Mapping[str, Any]:
    return tomllib.loads((FOLDER / "bounds.toml").read_text("utf-8"))


def models() -> list[str]:
    return [name for name in settings() if name != "tlc"]


def checks(size: str) -> Iterator[Check]:
    """The good models in these bounds, `small` or `large`."""
    for model in models():
        entry = settings()[model]
        invariants = (*entry.get("invariants", ()), *entry.get("lemmas", ()))
        for name, one in entry[size].items():
            yield Check(
                model, name, one["bounds"], invariants, tuple(entry.get("properties", ())), states=one["states"]
            )


def defects() -> Iterator[Check]:
    """The defects, each in the bounds in which it is found; only what it violates is looked for."""
    for model in models():
        entry = settings()[model]
        for name, one in entry["defects"].items():
            goal, properties = one["violates"], entry.get("properties", ())
            wanted, actions = ((), (goal,)) if goal in properties else ((goal,), ())
            yield Check(model, name, one["bounds"], wanted, actions, violates=goal, why=one["why"])


def run(check: Check, seconds: float = SECONDS["small"]) -> Verdict:
    """Runs TLC in a folder of its own."""
    jars = fetch_set(JarSet.parse("tlc", settings()["tlc"]))
    # Short runs end before the optimising compiler has paid off, and several of them run at once.
    is_short = seconds <= SECONDS["small"]
    machine = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if is_short else ["-XX:+UseParallelGC"]
    with tempfile.TemporaryDirectory(prefix="inorder-tlc-") as name:
        folder = Path(name)
        (folder / "check.cfg").write_text(check.config(), "utf-8")
        (folder / f"{check.model}.tla").write_text((FOLDER / f"{check.model}.tla").read_text("utf-8"), "utf-8")
        java = [str(find_java()), *machine, "-Xmx2g", f"-Djava.io.tmpdir={name}"]
        workers = "1" if is_short else str(WORKERS)
        tlc = ["tlc2.TLC", "-workers", workers, "-metadir", f"{name}/states", "-config", "check.cfg"]
        command = [*java, "-cp", ":".join(map(str, jars)), *tlc, f"{check.model}.tla"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    return _verdict(done.stdout + done.stderr)


def _verdict(output: str) -> Verdict:
    violated = re.search(r"(?:Invariant|Action property|Temporal properties) ?(\w*) ?(?:is|were) violated", output)
    states = re.findall(r"([\d,]+) distinct states found", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    return Verdict(
        violated[1] if violated else None,
        "Model checking completed. No error has been found." in output,
        int(states[-1].replace(",", "")) if states else 0,
        int(depth[1]) if depth else 0,
        output,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs all checks of a size and all defects; records what was found. 1 if anything is not as it should be."""
    size = arguments[0] if arguments else "large"
    wanted = set(arguments[1:]) or set(models())
    faults, found = list[str](), list[dict[str, object]]()
    for check in [*checks(size), *defects()]:
        if check.model not in wanted:
            continue
        verdict = run(check, SECONDS[size])
        fault = verdict.fault(check)
        faults += [fault] if fault else []
        what = f"violates {verdict.violated}, as it should" if check.violates else f"{verdict.states} states, all good"
        print(f"{check.title}: {fault or what}", flush=True)  # noqa: T201
        found.append(
            {
                "model": check.model,
                "name": check.name,
                "bounds": dict(check.bounds),
                "states": verdict.states,
                "depth": verdict.depth,
                "violates": check.violates,
                "why": check.why,
            }
        )
    if not faults and wanted == set(models()):
        record("models", {"size": size, "checks": found})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
