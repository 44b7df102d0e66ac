"""Records that are not applied, because one before them in their journal cannot be read, and what becomes of them.

A journal without one of its records would show a hole, or worse, would let its writer go on from the wrong number. So
the damaged record and everything that follows in its journal is kept aside, as it came, and the journal is *parked*:
readers are told so, and all other journals go on. Three things end it:

- a purge in the log, after which nothing of it matters;
- `release`, once the records can be read (by a newer version, say): they are applied in the order of their offsets;
- `discard`, which gives records up for good: one, or all of a journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key
from inorder.ports.journal_log import LogRecord

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from inorder.journal.replication.replica import ReplicaSlice


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record in quarantine, and why it is there."""

    key: Key
    partition: int
    reason: str
    record: LogRecord

    @property
    def offset(self) -> int:
        """Where it lies in its partition."""
        return self.record.offset


class Quarantine(Protocol):
    """What operators need of a store."""

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """As replicators take it, so that none of them writes meanwhile."""

    def quarantined(self, topic: str | None = None, id: str | None = None) -> Sequence[Quarantined]:
        """The records in quarantine by topic, id, partition and offset; those of one topic or journal where asked."""

    def discard(self, key: Key, offset: int | None = None) -> int:
        """Gives up all records of a journal, or one; says how many there were."""

    def close(self) -> None:
        """Gives connections back."""


def is_parked(key: Key, partition: int, offset: int) -> DamagedRecordError:
    """What readers of a parked journal are told."""
    return DamagedRecordError(
        f"The journal {key} is parked: its records from {key.topic}[{partition}] offset {offset} on are in quarantine.",
        hint=f"`inorder journal quarantine list --topic {key.topic}` tells why; release or discard them, or purge it.",
        topic=key.topic,
        partition=partition,
        offset=offset,
    )


def by_partition(records: Sequence[Quarantined]) -> list[tuple[int, list[Quarantined]]]:
    """The records of one journal, partition by partition: a journal whose topic was repartitioned has several."""
    ordered = sorted(records, key=lambda each: (each.partition, each.offset))
    return [(partition, list(some)) for partition, some in groupby(ordered, lambda each: each.partition)]
