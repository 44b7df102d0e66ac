"""Heads that a replicator need not ask for again, because it wrote or read them itself and nobody came between.

**What is authoritative.** The store. A head is taken from memory only while the partition's offset in the store is
the one that this replicator has moved there itself. Whoever replicates a partition moves its offset, so until it is
another one the journals of the partition are as this replicator left them, but for what somebody has begun and not
finished: the same cells that this one is about to write, with the same times.

Taken from memory, a head is as old as one that a replicator read before it was paused. So a store must have an answer
to that already: Cassandra has the time of each cell, and the offset that is moved by compare-and-set.

| what happens                                     | what follows                                                    |
|---|---|
| another one moves the offset, or the store goes  | the offset is another one: all heads of the partition are       |
| back to a backup                                 | forgotten before the first is used                              |
| a slice fails, wherever                          | the same; what it wrote is not known                            |
| another one dies in mid-slice                    | the offset stays; this one writes what that one did, and more   |
| a journal is parked, by whomever, or was refused | its head is forgotten: `release` changes it and moves no offset |
| a journal has records in several partitions, and | in one process the head is known to the partition that wrote it |
| they come by turns                               | last; in another one a partition may go by its own older head,  |
|                                                  | and then takes a fork of the other's events for the first       |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from inorder.journal.replication.quarantine import Quarantined
from inorder.journal.replication.replica import JournalChange, ReplicaSlice
from inorder.journal.replication.slice_around import SliceAround
from inorder.model.journal import Key
from inorder.ports.journal_store import JournalHead

MOST: Final = 20_000
"""Heads that are kept, those that were used last: some ten megabytes."""


class _Term(NamedTuple):
    """For as long as nobody else moves the offset of a partition."""

    partition: int
    number: int


class HeadMemory:
    """What one replicator remembers, of all its partitions."""

    def __init__(self, most: int = MOST) -> None:
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


class _RememberingSlice(SliceAround):
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
