"""What the commands found when they ran last, with the date: `docs/proof.json`, from which `docs/proof.md` is made."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "proof.json"


def record(part: str, found: dict[str, object]) -> None:
    """Replaces what one command found."""
    everything = read()
    everything[part] = {"date": datetime.now(UTC).date().isoformat(), **found}
    FILE.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", "utf-8")


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found
