"""What a replicator needs of the store that it writes journals to, and what operators need of its quarantine.

One slice of a partition is written at a time, and the partition's offset moves last. A store with transactions makes
all of it visible at once. One without executes the statements in their order, so that a reader that sees the offset
moved sees everything else too, and repeating the whole is harmless.

**Quarantine.** A journal without one of its records would show a hole, or worse, would let its writer continue from the
wrong number. So a damaged record and everything that follows in its journal is kept aside, as it came, and the journal
is *parked*: readers get an error, and all other journals continue. Three things end it:

- a purge in the log, after which nothing of it matters;
- `release`, once the records can be read (by a newer version, for example): they are applied in offset order;
- `discard`, which drops records for good: one, or all of a journal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from inorder.journal.action import KEEP_EXPIRY
from inorder.journal.replication.transition import (
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    Statement,
    UpdateHead,
)
from inorder.journal.stores.ports import JournalHead, LogRecord, TopicIncarnation
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key


class OffsetStatement(NamedTuple):
    """A statement and the offset of its action, which decides the order if the store has none of its own."""

    offset: int
    statement: Statement


@dataclass(frozen=True, slots=True)
class JournalChange:
    """What a slice changes in one journal: the statements in their order, and the head that they lead to."""

    key: Key
    statements: Sequence[OffsetStatement]
    head: JournalHead | None


def write_head_once(change: JournalChange) -> list[OffsetStatement]:
    """The statements for a store without transactions: new events, then the head, then deletes of events.

    A slice leaves out what later records of it undo, so only the last head of a journal is a state that it was in: a
    reader that found one of those before it would see a mixture. The store must go by the offsets of statements, not by
    their order, since events are now deleted after newer ones in the same segment were added. What a purge does comes
    first; it is always the first action of a slice that counts.
    """
    statements = change.statements
    begin = 1 + max((at for at, each in enumerate(statements) if isinstance(each.statement, DeleteHead)), default=-1)
    rest = statements[begin:]
    heads = [each for each in rest if isinstance(each.statement, InsertHead | UpdateHead)]
    if len(heads) <= 1:
        return list(statements)
    inserts = [each for each in rest if isinstance(each.statement, InsertEvents)]
    deletes = [each for each in rest if isinstance(each.statement, DeleteEvents)]
    merged = reduce(lambda one, other: _merge_heads(one, other, change.head), (each.statement for each in heads))
    return [*statements[:begin], *inserts, OffsetStatement(heads[-1].offset, merged), *deletes]


def _merge_heads(earlier: Statement, later: Statement, last: JournalHead | None) -> Statement:
    if isinstance(earlier, InsertHead) and last is not None:
        return replace(earlier, head=last)
    if not isinstance(earlier, UpdateHead) or not isinstance(later, UpdateHead):
        raise TypeError(f"A head is inserted before it is updated, not after: {earlier}, {later}.")
    deletes = later.delete_to is not None or later.clears_delete_to
    return UpdateHead(
        later.partition_offset,
        later.updated,
        seq_nr=earlier.seq_nr if later.seq_nr is None else later.seq_nr,
        delete_to=later.delete_to if deletes else earlier.delete_to,
        clears_delete_to=later.clears_delete_to if deletes else earlier.clears_delete_to,
        record_id=later.record_id or earlier.record_id,
        expiry=earlier.expiry if later.expiry == KEEP_EXPIRY else later.expiry,
        gaps=earlier.gaps if later.gaps is None else later.gaps,
    )


class ReplicaSlice(Protocol):
    """One slice being written; the methods are called in this order."""

    def lock_offset(self) -> int | None:
        """The partition's replicated offset, which no one else moves until the slice ends; None before the first."""

    def parked(self, keys: Sequence[Key]) -> Collection[Key]:
        """Those of the journals that have records in quarantine."""

    def heads(self, keys: Sequence[Key]) -> Mapping[Key, JournalHead]:
        """The heads of those journals that have one."""

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        """Writes the changes of different journals; `RejectedError` where the store refuses one for its content."""

    def attempt(self) -> AbstractContextManager[None]:
        """A block that leaves nothing visible if it raises; the slice continues after it."""

    def free(self, purged: Mapping[Key, int]) -> None:
        """Removes the records of these journals from quarantine: a purge at the given offset has made them void."""

    def lift(self, key: Key, partition: int, offset: int) -> None:
        """Removes one record from quarantine, because it is applied."""

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        """Keeps records that are not applied; one that is there already stays."""

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:
        """Everything up to the offset is written; it never moves back.

        `topic_id` is Kafka's id of the topic that the slice was read from. A store with transactions raises
        `OtherTopicError` if it has accepted another topic of that name meanwhile.
        """


class JournalReplica(Protocol):
    """The write side of a store. Used by one thread at a time."""

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """Begins a slice; after an exception it can be begun again.

        Raises `UnknownOutcomeError` if the answer to the commit is lost: then the offset says whether it happened.
        Raises `FencedError` if another replicator has moved the offset meanwhile.
        """

    def offsets(self, topic: str) -> Mapping[int, int]:
        """The replicated offsets of a topic, by partition."""

    def incarnation(self, topic: str) -> TopicIncarnation | None:
        """Which topic of that name the offsets and journals belong to; None before it was recorded."""

    def adopt(self, topic: str, held: TopicIncarnation) -> TopicIncarnation:
        """Records which topic it is, unless that is known; returns what is recorded then."""

    def close(self) -> None:
        """Releases connections; may be used again afterwards."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record in quarantine, and why it is there."""

    key: Key
    partition: int
    reason: str
    record: LogRecord

    @property
    def offset(self) -> int:
        return self.record.offset


class Quarantine(Protocol):
    """What operators need of a store."""

    def slice(self, topic: str, partition: int) -> AbstractContextManager[ReplicaSlice]:
        """Locks the partition as replicators do, so that none of them writes meanwhile."""

    def quarantined(self, topic: str | None = None, id: str | None = None) -> Sequence[Quarantined]:
        """The records in quarantine by topic, id, partition and offset; optionally of one topic or journal."""

    def discard(self, key: Key, offset: int | None = None) -> int:
        """Drops all records of a journal, or one; returns how many there were."""

    def close(self) -> None:
        """Releases connections."""


def parked_error(key: Key, partition: int, offset: int) -> DamagedRecordError:
    return DamagedRecordError(
        f"The journal {key} is parked: its records from {key.topic}[{partition}] offset {offset} on are in quarantine.",
        hint=f"`inorder journal quarantine list --topic {key.topic}` says why; release, discard or purge it.",
        topic=key.topic,
        partition=partition,
        offset=offset,
    )


def group_by_partition(records: Sequence[Quarantined]) -> list[tuple[int, list[Quarantined]]]:
    """The records of one journal, partition by partition: a journal whose topic was repartitioned has several."""
    ordered = sorted(records, key=lambda each: (each.partition, each.offset))
    return [(partition, list(some)) for partition, some in groupby(ordered, lambda each: each.partition)]


MAX_HEADS: Final = 20_000
"""How many heads are kept, the most recently used ones: some ten megabytes."""


class _Term(NamedTuple):
    """The time during which no one else moves the offset of a partition."""

    partition: int
    number: int


class HeadMemory:
    """Heads that a replicator need not read again: it wrote or read them itself, and no one wrote since.

    **What is authoritative.** The store. A head is taken from memory only while the partition's offset in the store is
    the one that this replicator has moved there itself. Every replicator of a partition moves its offset, so until the
    offset differs the journals of the partition are as this replicator left them, except for what another one has begun
    and not finished: the same cells that this one is about to write, with the same times.

    A head from memory is as old as one that a replicator read before it was paused. So a store must be able to handle
    that anyway: Cassandra has the time of each cell. There another one may have moved the offset to the same place, but
    then it has written the same.

    | what happens                                    | what follows                                                   |
    |---|---|
    | another one moves the offset, or the store is   | the offset differs: all heads of the partition are forgotten   |
    | restored from a backup                          | before the first is used                                       |
    | a slice fails, wherever                         | the same; what it wrote is not known                           |
    | another one dies in mid-slice                   | the offset stays; this one writes what that one did, and more  |
    | it dies after a purge, before the offset moves  | the store shows no head where there was one: so a head that is |
    |                                                 | missing is not remembered, nor one that begins after it        |
    | a journal is parked, by anyone, or was refused  | its head is forgotten: `release` changes it without an offset  |
    | a journal has records in several partitions,    | in one process the head belongs to the partition that wrote it |
    | and they alternate                              | last; in another one a partition may use its own older head,   |
    |                                                 | and then takes a fork of the other's events for the first      |
    """

    def __init__(self, most: int = MAX_HEADS) -> None:
        self._most = most
        self._heads: OrderedDict[Key, tuple[_Term, JournalHead | None]] = OrderedDict()
        self._terms: dict[tuple[str, int], tuple[_Term, int]] = {}
        self._begun = 0

    @contextmanager
    def over(self, writing: ReplicaSlice, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        """The slice, with heads from memory as far as they are known."""
        self._begun += 1
        # Removed first, so that a slice that raises leaves nothing.
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
        """The heads that are known in a term; None for a journal that has none."""
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
        """Makes the next slice read these heads from the store."""
        for key in keys:
            self._heads.pop(key, None)


class _RememberingSlice:
    """A slice that reads only those heads from the store that are not known; all else it forwards."""

    def __init__(
        self, memory: HeadMemory, writing: ReplicaSlice, fresh: _Term, before: tuple[_Term, int] | None
    ) -> None:
        self._slice = writing
        self.term = fresh
        self.moved_to: int | None = None
        self._memory = memory
        self._before = before
        self._offset: int | None = None
        self._parked: Collection[Key] = ()
        self._missing: Collection[Key] = ()

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
        read = self._slice.heads(unknown) if unknown else {}
        self._missing = {key for key in unknown if key not in read}
        for key, head in read.items():
            self._remember(key, head)
        return {key: head for key, head in known.items() if head is not None} | dict(read)

    def carry_out(self, changes: Sequence[JournalChange]) -> None:
        self._slice.carry_out(changes)
        for change in changes:
            self._remember(change.key, change.head)

    def quarantine(self, records: Sequence[Quarantined]) -> None:
        self._slice.quarantine(records)
        self._memory.forget({each.key for each in records})

    def attempt(self) -> AbstractContextManager[None]:
        return self._slice.attempt()

    def free(self, purged: Mapping[Key, int]) -> None:
        self._slice.free(purged)

    def lift(self, key: Key, partition: int, offset: int) -> None:
        self._slice.lift(key, partition, offset)

    def move_offset(self, offset: int, topic_id: str | None = None) -> None:
        self._slice.move_offset(offset, topic_id)
        if self._offset is None or offset > self._offset:
            self.moved_to = offset

    def _remember(self, key: Key, head: JournalHead | None) -> None:
        if key not in self._parked and key not in self._missing:
            self._memory.remember(self.term, key, head)
