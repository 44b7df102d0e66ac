"""What a replicator needs of the store that it writes journals to.

One slice of a partition is carried out at a time, and the partition's offset moves last. A store with transactions
makes all of it visible at once. One without carries the statements out in their order, so that whoever finds the offset
moved finds everything else too, and repeating the whole is harmless.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from inorder.journal.replication.transition import Statement
from inorder.journal.stores.ports import JournalHead, LogRecord
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key


class OffsetStatement(NamedTuple):
    """A statement and the offset of the action behind it, which decides where a store has no order of its own."""

    offset: int
    statement: Statement


@dataclass(frozen=True, slots=True)
class JournalChange:
    """What a slice comes to for one journal: the statements in their order, and the head that they lead to."""

    key: Key
    statements: Sequence[OffsetStatement]
    head: JournalHead | None


class ReplicaSlice(Protocol):
    """One slice being written; the verbs are called in this order."""

    def lock_offset(self) -> int | None:
        """The partition's replicated offset, which nobody else moves until the slice ends; None before the first."""

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        """Those of the journals that have records in quarantine."""

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        """The heads of those journals that have one."""

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        """Writes the changes of different journals; `RejectedError` where the store refuses one for its content."""

    def attempt(self) -> AbstractContextManager[None]:
        """A block after whose exception nothing of it is left that anybody sees, and the slice goes on."""

    def free(self, purged: Mapping[Key, int]) -> None:
        """Removes the records of these journals from quarantine: a purge at the offset given has made them void."""

    def lift(self, key: Key, partition: int, offset: int) -> None:
        """Removes one record from quarantine, because it is applied."""

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Keeps records that are not applied; one that is there already stays."""

    def move_offset(self, offset: int) -> None:
        """Everything up to the offset is written; it never moves back."""


class JournalReplica(Protocol):
    """The write side of a store. Used by one thread at a time."""

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """Begins a slice; an exception leaves what can be begun again.

        `UnknownOutcomeError` where the answer to the commit is lost: the offset tells. `FencedError` where another
        replicator has moved the offset meanwhile.
        """

    def offsets(self, topic: str) -> Mapping[int, int]:
        """The replicated offsets of a topic, by partition."""

    def close(self) -> None:
        """Gives connections back; may be used again afterwards."""


# Records that are not applied, because one before them in their journal cannot be read, and what becomes of them.
#
# A journal without one of its records would show a hole, or worse, would let its writer go on from the wrong number. So
# the damaged record and everything that follows in its journal is kept aside, as it came, and the journal is *parked*:
# readers are told so, and all other journals go on. Three things end it:
#
# - a purge in the log, after which nothing of it matters;
# - `release`, once the records can be read (by a newer version, say): they are applied in the order of their offsets;
# - `discard`, which gives records up for good: one, or all of a journal.

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


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


def parked_error(key: Key, partition: int, offset: int) -> DamagedRecordError:
    """What readers of a parked journal are told."""
    return DamagedRecordError(
        f"The journal {key} is parked: its records from {key.topic}[{partition}] offset {offset} on are in quarantine.",
        hint=f"`inorder journal quarantine list --topic {key.topic}` tells why; release or discard them, or purge it.",
        topic=key.topic,
        partition=partition,
        offset=offset,
    )


def group_by_partition(records: Sequence[Quarantined]) -> list[tuple[int, list[Quarantined]]]:
    """The records of one journal, partition by partition: a journal whose topic was repartitioned has several."""
    ordered = sorted(records, key=lambda each: (each.partition, each.offset))
    return [(partition, list(some)) for partition, some in groupby(ordered, lambda each: each.partition)]


# A slice around another one: what it does not say itself, the other one does.


class ForwardingSlice:
    """The verbs that nobody has anything to add to."""

    def __init__(self, writing: ReplicaSlice) -> None:
        self._slice = writing

    def attempt(self) -> AbstractContextManager[None]:
        """Passed on."""
        return self._slice.attempt()

    def free(self, purged: Mapping[Key, int]) -> None:
        """Passed on."""
        self._slice.free(purged)

    def lift(self, key: Key, partition: int, offset: int) -> None:
        """Passed on."""
        self._slice.lift(key, partition, offset)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Passed on."""
        self._slice.quarantine(records)


# Heads that a replicator need not ask for again, because it wrote or read them itself and nobody came between.
#
# **What is authoritative.** The store. A head is taken from memory only while the partition's offset in the store is
# the one that this replicator has moved there itself. Whoever replicates a partition moves its offset, so until it is
# another one the journals of the partition are as this replicator left them, but for what somebody has begun and not
# finished: the same cells that this one is about to write, with the same times.
#
# Taken from memory, a head is as old as one that a replicator read before it was paused. So a store must have an answer
# to that already: Cassandra has the time of each cell, and the offset that is moved by compare-and-set.
#
# | what happens                                     | what follows                                                    |
# |---|---|
# | another one moves the offset, or the store goes  | the offset is another one: all heads of the partition are       |
# | back to a backup                                 | forgotten before the first is used                              |
# | a slice fails, wherever                          | the same; what it wrote is not known                            |
# | another one dies in mid-slice                    | the offset stays; this one writes what that one did, and more   |
# | a journal is parked, by whomever, or was refused | its head is forgotten: `release` changes it and moves no offset |
# | a journal has records in several partitions, and | in one process the head is known to the partition that wrote it |
# | they come by turns                               | last; in another one a partition may go by its own older head,  |
# |                                                  | and then takes a fork of the other's events for the first       |

MAX_HEADS: Final = 20_000
"""Heads that are kept, those that were used last: some ten megabytes."""


class _Term(NamedTuple):
    """For as long as nobody else moves the offset of a partition."""

    partition: int
    number: int


class HeadMemory:
    """What one replicator remembers, of all its partitions."""

    def __init__(self, most: int = MAX_HEADS) -> None:
        self._most = most
        self._heads: OrderedDict[Key, tuple[_Term, JournalHead | None]] = OrderedDict()
        self._terms: dict[tuple[str, int], tuple[_Term, int]] = {}
        self._begun = 0

    @contextmanager
    def over(self, writing: ReplicaSlice, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """The slice, with heads from memory where they are known."""
        self._begun += 1
        # Taken out: a slice that ends with an exception leaves nothing.
        before = self._terms.pop((topic, partition), None)
        remembering = _RememberingSlice(self, writing, _Term(partition, self._begun), before)
        yield remembering
        if remembering.moved_to is not None:
            self._terms[topic, partition] = remembering.term, remembering.moved_to

    def moved_to(self, topic: str, partition: int) -> int | None:
        """The offset that the last slice of a partition has moved."""
        before = self._terms.get((topic, partition))
        return None if before is None else before[1]

    def known(self, term: _Term, keys: Sequence[Key]) -> dict[Key, JournalHead | None]:
        """The heads of those journals that are known in a term; None is none."""
        found: dict[Key, JournalHead | None] = {}
        for key in keys:
            of, head = self._heads.get(key, (None, None))
            if of == term:
                found[key] = head
        return found

    def remember(self, term: _Term, key: Key, head: JournalHead | None) -> None:
        """Keeps a head, or that there is none."""
        self._heads[key] = term, head
        self._heads.move_to_end(key)
        if len(self._heads) > self._most:
            self._heads.popitem(last=False)

    def forget(self, keys: Collection[Key]) -> None:
        """The store is asked next time."""
        for key in keys:
            self._heads.pop(key, None)


class _RememberingSlice(ForwardingSlice):
    """A slice that asks the store only for heads which are not known."""

    def __init__(
        self, memory: HeadMemory, writing: ReplicaSlice, fresh: _Term, before: tuple[_Term, int] | None
    ) -> None:
        super().__init__(writing)
        self.term = fresh
        self.moved_to: int | None = None
        self._memory = memory
        self._before = before
        self._offset: int | None = None
        self._parked: Collection[Key] = ()

    def lock_offset(self) -> int | None:
        self._offset = self._slice.lock_offset()
        if self._before is not None and self._before[1] == self._offset:
            self.term = self._before[0]
        return self._offset

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        self._parked = self._slice.parked(keys)
        self._memory.forget(self._parked)
        return self._parked

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        known = self._memory.known(self.term, keys)
        unknown = [key for key in keys if key not in known]
        asked = self._slice.heads(unknown) if unknown else {}
        for key in unknown:
            self._remember(key, asked.get(key))
        return {key: head for key, head in known.items() if head is not None} | dict(asked)

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        self._slice.carry_out(changes)
        for change in changes:
            self._remember(change.key, change.head)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        super().quarantine(records)
        self._memory.forget({each.key for each in records})

    def move_offset(self, offset: int) -> None:
        self._slice.move_offset(offset)
        if self._offset is None or offset > self._offset:
            self.moved_to = offset

    def _remember(self, key: Key, head: JournalHead | None) -> None:
        if key not in self._parked:
            self._memory.remember(self.term, key, head)
