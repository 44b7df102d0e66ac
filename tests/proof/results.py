"""What the commands found when they ran last, with the date: `docs/proof.json`, from which `docs/proof.md` is made."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "proof.json"


def record(part: str, found: dict[str, object]) -> None:
    """Replaces what one command found; `found` has a date of its own where a part of it is older."""
    everything = read()
    everything[part] = {"date": today(), **found}
    FILE.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", "utf-8")


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found
