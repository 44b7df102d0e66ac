"""The state of everything, part by part: what the status commands of the parts print, in one look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inorder.journal.service import JournalAdmin
from inorder.model.errors import InorderError
from inorder.operate.topics import TopicAdmin
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
from inorder.relay.status import RelayAdmin
from inorder.topics.pauses import Pause

Part = dict[str, Any]


def read_parts(parts: Mapping[str, Callable[[], Part]]) -> dict[str, Part]:
    """By part; a part that cannot be read has its `error` and nothing else."""
    return {name: _read(part) for name, part in parts.items()}


def _read(part: Callable[[], Part]) -> Part:
    try:
        return part()
    except InorderError as error:
        return {"error": error.message, "exit_code": error.exit_code}


def relay_part(relay: RelayAdmin) -> Part:
    return {**relay.status(), "exceeded": len(relay.exceeded_rows())}


def topics_part(topics: TopicAdmin, pauses: Sequence[Pause]) -> Part:
    switched = topics.status()
    return {
        "switched": len(switched),
        "behind": {each["topic"]: each["behind"] for each in switched},
        "paused": {f"{each.kind} {each.name}": str(each) for each in pauses},
    }


def pipeline_part(status: Part, letters: DeadLetterAdmin) -> Part:
    fields = {name: value for name, value in status.items() if name != "partitions"}
    return {**fields, "dead_letters": sum(letters.count().values())}


def journal_part(journal: JournalAdmin) -> Part:
    rows = journal.lag()
    if not rows:
        return {"topics": 0, "behind": 0}
    return {
        "topics": len({row.topic for row in rows}),
        "behind": sum(row.behind for row in rows),
        "parked": len({each.key for each in journal.quarantined()}),
    }
