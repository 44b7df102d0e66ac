"""Every guarantee is shown by a test that `make test` runs, not only by one of a longer run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass

import pytest

from tests.unit.docs.markdown import ROOT, page, rows, spans

GUARANTEES = "docs/guarantees.md"
LONG_RUN = "This is the long run, `make fault`."
"""How a row says that it is about the long run itself; the same kills, fewer of them, have a row of their own."""


@dataclass(frozen=True)
class Stage:
    """One run of pytest within `make test`."""

    folders: tuple[str, ...]
    markers: str

    def within(self, names: set[str]) -> set[str]:
        """Those of these tests that are in its folders."""
        return {name for name in names if name.startswith(tuple(f"{folder}/" for folder in self.folders))}


def selected(stages: list[Stage], names: set[str]) -> set[str]:
    """Those of these tests that the stages run, with one set of parameters at least."""
    by_markers: dict[str, set[str]] = defaultdict(set)
    for stage in stages:
        by_markers[stage.markers] |= stage.within(names)
    return set().union(*(ours & collected(markers, ours) if markers else ours for markers, ours in by_markers.items()))


def collected(markers: str, names: set[str]) -> set[str]:
    """What pytest selects by these markers in the files of these tests."""
    files = sorted({name.partition("::")[0] for name in names})
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:randomly"]
    ran = subprocess.run([*command, "-m", markers, *files], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {line.partition("[")[0] for line in ran.stdout.splitlines() if "::" in line}


def stages() -> list[Stage]:
    """What `make test` would run."""
    make = shutil.which("make")
    assert make, "make is not there"
    ran = subprocess.run([make, "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [stage(shlex.split(line)) for line in ran.stdout.splitlines() if "/pytest " in line]


def stage(words: list[str]) -> Stage:
    folders = tuple(word for word in words if word.startswith("tests/"))
    return Stage(folders, words[words.index("-m") + 1] if "-m" in words else "")


@pytest.mark.full
def test_every_guarantee_is_shown_by_make_test() -> None:
    shown_by = {row[0]: {span for span in spans(row[-1]) if "::" in span} for row in rows(page(GUARANTEES))}
    named = set().union(*shown_by.values())
    found = stages()
    assert len(found) >= 2
    shown = selected(found, named)
    unseen = [claim for claim, names in shown_by.items() if not names & shown]
    assert [claim for claim in unseen if not claim.endswith(LONG_RUN)] == []
