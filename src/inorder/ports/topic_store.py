"""The messages and lock rows of the deimos layout, as the strategy `topic-lock` sees them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from inorder.ports.outbox_store import OutboxRow


@dataclass(frozen=True, slots=True)
class TopicState:
    """What waits for one topic, and who works on it."""

    topic: str
    messages: int = 0
    oldest: datetime | None = None
    """When the oldest message was written; None while there is none, or where its writer did not tell."""
    last_processed_at: datetime | None = None
    """When the topic was last sent to the end, or seen to be empty."""
    locked_by: str | None = None
    locked_at: datetime | None = None
    error: bool = False
    """Whether it rests after an error, until its lock is stale."""
    retries: int = 0
    """Errors since it was last sent to the end."""


class TopicStore(Protocol):
    """Reads, stamps and deletes messages under the lock of their topic.

    A worker calls it from its own thread, and `heartbeat` from a second one; each worker has a store of its own. A lock
    belongs to whoever its row names. The database's clock alone tells when it is stale; then anybody may take it, and
    `FencedError` tells the old holder. Failures of the environment are raised as `TransientError`, after which the next
    call may connect anew; whatever was asked for may have happened, and is right to ask for again.
    """

    def check(self) -> None:
        """Raises `ConfigurationError` unless both tables are there with the columns that are needed."""

    def topics(self) -> list[str]:
        """Topics that have messages; those of parked keys count."""

    def lock(self, topic: str, worker: UUID) -> bool:
        """Takes the lock if it is free and the topic does not rest, if it is stale, or if it is ours; one UPDATE.

        Makes the lock row where there is none.
        """

    def read(self, topic: str, limit: int) -> list[OutboxRow]:
        """The oldest messages of the topic by id, in one snapshot; those of parked keys are left out."""

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        """Writes the session of a batch into its messages and renews the lock; returns how many there were.

        `FencedError` if the lock is not ours; nothing is stamped then.
        """

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        """Deletes those of the messages that carry the session, a group a transaction; returns how many there were.

        Each transaction renews the lock. `FencedError` if it is not ours; what earlier groups deleted stays deleted.
        """

    def heartbeat(self, topic: str, worker: UUID) -> bool:
        """Renews the lock; False if it is not ours."""

    def unlock(self, topic: str, worker: UUID) -> None:
        """Gives the lock up after the topic was sent to the end, and forgets its errors; nothing if it is not ours."""

    def fail(self, topic: str, worker: UUID) -> None:
        """Gives the lock up after an error: the topic rests until it would be stale; nothing if it is not ours."""

    def touch_empty(self, except_topics: Collection[str]) -> None:
        """Notes of all other topics that nobody has locked that there was nothing to do."""

    def pending(self) -> list[TopicState]:
        """Every topic that has messages or a lock row, by name."""

    def close(self) -> None:
        """Gives the connection back; may be called twice."""
