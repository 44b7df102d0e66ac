"""What operators read, as JSON has it: the same fields from every command, the HTTP API and the pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from inorder.journal.replication.store_port import Quarantined
from inorder.journal.service import Lag
from inorder.model.errors import ConfigurationError
from inorder.operate.actions import Action, Outcome
from inorder.operate.key_timeline import timeline
from inorder.operate.key_trace import KeyTrace, TableHop, TopicHop, findings, is_known, summary
from inorder.pipeline.stores.ports import LetterGroup, LetterPosition, StoredLetter
from inorder.relay.stores.exceeded import ExceededGroup, ExceededRow
from inorder.relay.stores.ports import MissingEvent

_LONGEST_VALUE = 60
"""Characters of a value in a list; the record itself is shown whole."""


def readable(value: bytes | None) -> str | None:
    """Bytes for people: text where they are text, escaped where they are not."""
    return None if value is None else value.decode(errors="backslashreplace")


def exceeded_fields(row: ExceededRow) -> dict[str, object]:
    """A refused record in a list."""
    return {
        "id": row.id,
        "topic": row.topic,
        "key": readable(row.key),
        "attempts": row.attempts,
        "code": row.code,
        "parks": row.parks,
        "exceeded_at": row.exceeded_at.isoformat(),
        "reason": row.reason,
    }


def whole_exceeded(row: ExceededRow) -> dict[str, object]:
    """A refused record with its headers and value."""
    return {**exceeded_fields(row), "headers": row.headers, "value": readable(row.value)}


def missing_fields(event: MissingEvent) -> dict[str, object]:
    """An id that is looked for, or retried."""
    at = event.missed_at
    return {
        "id": event.id,
        "retries": event.retry_count,
        "failed": event.exception_thrown,
        "missed_at": None if at is None else at.isoformat(),
    }


def letter_fields(letter: StoredLetter) -> dict[str, object]:
    """A dead letter in a list."""
    return {
        "id": letter.id,
        "pipeline": letter.pipeline,
        "key": readable(letter.key),
        "code": letter.code,
        "recorded_at": letter.recorded_at.isoformat(),
        "detail": letter.detail,
    }


def whole_letter(letter: StoredLetter, *, with_bytes: bool = True) -> dict[str, object]:
    """A dead letter with its value; `with_bytes` adds what text cannot show exactly."""
    at = letter.record_timestamp
    fields = {
        **letter_fields(letter),
        "generation": letter.generation,
        "record_timestamp": None if at is None else at.isoformat(),
        "value": readable(letter.value),
    }
    if with_bytes:
        fields |= {"key_base64": _base64(letter.key), "value_base64": _base64(letter.value)}
    return fields


def quarantine_fields(each: Quarantined) -> dict[str, object]:
    """A record that could not be replicated."""
    return {
        "topic": each.key.topic,
        "id": each.key.id,
        "partition": each.partition,
        "offset": each.offset,
        "value": (readable(each.record.value) or "")[:_LONGEST_VALUE],
        "reason": each.reason,
    }


def lag_fields(row: Lag) -> dict[str, object]:
    """A partition of a topic of journals."""
    return row._asdict()


def group_fields(groups: Iterable[ExceededGroup | LetterGroup]) -> list[dict[str, object]]:
    """Groups of records that were set aside for the same reason."""
    return [asdict(each) | {"oldest": each.oldest.isoformat() if each.oldest else None} for each in groups]


def trace_fields(trace: KeyTrace) -> dict[str, Any]:
    """A key at every hop, with what was found and a sentence about it; JSON has no pairs as names."""
    found = findings(trace)
    return {
        **asdict(trace),
        "topics": [_topic_fields(topic) for topic in trace.topics],
        "tables": [_table_fields(table) for table in trace.tables],
        "events": [asdict(each) for each in timeline(trace)],
        "findings": [asdict(each) for each in found],
        "has_arrived": not found,
        "is_known": is_known(trace),
        "summary": summary(trace, found),
    }


def _table_fields(table: TableHop) -> dict[str, Any]:
    due = [{"topic": topic, "partition": number, "offset": at} for (topic, number), at in table.due.items()]
    fields = {**asdict(table), "due": due}
    del fields["generations"]
    return fields


def _topic_fields(topic: TopicHop) -> dict[str, Any]:
    """`before` names the next page, where there are older records."""
    first = topic.shown[0].offset if topic.older and topic.shown else None
    return {**asdict(topic), "before": None if first is None else f"{topic.topic}:{topic.partition}:{first}"}


def action_fields(action: Action) -> dict[str, Any]:
    """An entry of the log of actions in a list."""
    fields = asdict(action) | {"acted_at": action.acted_at.isoformat(), "target": json.loads(action.target)}
    del fields["outcome"]
    return fields


def whole_action(action: Action, now: Outcome) -> dict[str, Any]:
    """An entry with its result, and what has become of each record by now."""
    result = action.result
    fates = [{**each, "now": later["fate"]} for each, later in zip(result.fates, now.fates, strict=True)]
    return {
        **action_fields(action),
        "result": {"counts": dict(result.counts), "fates": fates, "error": result.error},
        "now": dict(now.counts),
    }


def letter_coordinates(letter_id: str) -> dict[str, Any]:
    """The fields of `TOPIC:PARTITION:OFFSET`, as lists name a dead letter, or of `PIPELINE/TOPIC:PARTITION:OFFSET`.

    Two pipelines may have rejected the same record. The name of a topic has no slash.
    """
    pipeline, _, place = letter_id.rpartition("/")
    topic, *numbers = place.rsplit(":", 2)
    if not topic or len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigurationError(f"{letter_id!r} is not an ID of a dead letter.", hint="It is TOPIC:PARTITION:OFFSET.")
    found = {"topic": topic, "partition": int(numbers[0]), "offset": int(numbers[1])}
    return {"pipeline": pipeline, **found} if pipeline else found


def letter_position(pipeline: str, letter_id: str) -> LetterPosition:
    """Where a page that ended with a letter continues."""
    return LetterPosition(**{"pipeline": pipeline, **letter_coordinates(letter_id)})


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
