"""How everything stands, part by part: what the status commands of the parts tell, in one look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inorder.journal.service import journal_lag, list_quarantine
from inorder.model.errors import InorderError
from inorder.operate.topics import generations_status
from inorder.pipeline.dead_letters_admin import count_dead_letters
from inorder.pipeline.status import pipeline_status
from inorder.relay.status import exceeded_rows, relay_status
from inorder.settings import Settings

Part = dict[str, Any]


def whole_status(settings: Settings) -> dict[str, Part]:
    """By part; a part that cannot be asked has an `error` and nothing else."""
    parts: dict[str, Callable[[Settings], Part]] = {
        "relay": _relay,
        "topics": _topics,
        "pipeline": _pipeline,
        "journal": _journal,
    }
    return {name: _asked(part, settings) for name, part in parts.items()}


def _asked(part: Callable[[Settings], Part], settings: Settings) -> Part:
    try:
        return part(settings)
    except InorderError as error:
        return {"error": error.message, "exit_code": error.exit_code}


def _relay(settings: Settings) -> Part:
    return {**relay_status(settings), "exceeded": len(exceeded_rows(settings))}


def _topics(settings: Settings) -> Part:
    switched = generations_status(settings)
    return {"switched": len(switched), "behind": {each["topic"]: each["behind"] for each in switched}}


def _pipeline(settings: Settings) -> Part:
    told = pipeline_status(settings)
    told.pop("partitions")
    return {**told, "dead_letters": sum(count_dead_letters(settings).values())}


def _journal(settings: Settings) -> Part:
    rows = journal_lag(settings)
    if not rows:
        return {"topics": 0, "behind": 0}
    parked = {each.key for each in list_quarantine(settings)}
    return {
        "topics": len({row.topic for row in rows}),
        "behind": sum(row.behind for row in rows),
        "parked": len(parked),
    }
