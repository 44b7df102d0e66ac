"""What the commands found when they ran last, with the date: `docs/proof.json`, from which `docs/proof.md` is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "proof.json"


def record(part: str, found: dict[str, object]) -> None:
    """Replaces what one command found; `found` has a date of its own where a part of it is older."""
    everything = read()
    everything[part] = {"date": today(), **found}
    FILE.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", "utf-8")


def record_test(name: str, found: Mapping[str, object]) -> None:
    """Replaces what one fault test did; tests that are no longer there are forgotten."""
    tests = read().get("faults", {}).get("tests", {})
    tests[name] = {"date": today(), **found}
    kept = {each: of_test for each, of_test in tests.items() if _exists(each)}
    record("faults", {"date": min((of_test["date"] for of_test in kept.values()), default=today()), "tests": kept})


def _exists(test: str) -> bool:
    path, _, function = test.partition("[")[0].partition("::")
    file = ROOT / path
    return file.exists() and f"def {function}(" in file.read_text("utf-8")


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found
