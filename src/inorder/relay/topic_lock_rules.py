"""What the strategy `topic-lock` decides, as functions of values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from inorder.ports.outbox_store import OutboxRow
from inorder.ports.topic_store import TopicState

Topics = frozenset[str] | Literal["all"]
"""Some topics by name, or all there are."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)


def includes(topics: Topics, topic: str) -> bool:
    """Whether a topic is among them."""
    return topics == "all" or topic in topics


def must_ask(now: float, confirmed_at: float, lock_seconds: float) -> bool:
    """Whether the lock was confirmed so long ago that it must be asked for before anything is sent.

    Half of its time is left then, for the answer and for the send. `confirmed_at` is when the question was asked.
    """
    return now - confirmed_at >= lock_seconds / 2


def compacted(rows: Sequence[OutboxRow]) -> dict[int, list[int]]:
    """The last row of each key by id, in order, each with the ids of all rows that it stands for.

    A row without a key stands for itself. So does every row of a batch in which one is malformed: that one would stand
    for good ones.
    """
    if any(row.flaw for row in rows):
        return {row.id: [row.id] for row in rows}
    last = {row.key: row.id for row in rows if row.key is not None}
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row.id if row.key is None else last[row.key], []).append(row.id)
    return dict(sorted(found.items()))


def oldest_wait(state: TopicState, now: datetime) -> float:
    """For how many seconds the oldest message has waited while nothing of its topic was done; 0 without messages.

    A message may be older than it waits: one that was written long ago and committed now, for example.
    """
    if not state.messages:
        return 0.0
    since = max(state.oldest or LONG_AGO, state.last_processed_at or LONG_AGO)
    return 0.0 if since == LONG_AGO else max(0.0, (now - since).total_seconds())
