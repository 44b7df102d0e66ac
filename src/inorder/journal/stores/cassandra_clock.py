"""The times of cells in Cassandra: of the present, and in the order of a partition's offsets.

The last write wins in Cassandra, by the time that it carries. A replicator that was paused must not win over one that
went on without it, and a repeated slice must write what it wrote before. So a time is made from the action's offset,
never from the clock at the moment of writing: time = base + offset, in microseconds. The base of a partition is made
from a clock once, before the first write, by compare-and-set in the table `clock`. It is the same for all replicators.

**Why the base is of the present.** The offset grows by less than one a microsecond, so a time made from it is never
ahead of the clock. An ordinary client writes at the time of its clock. What it writes later is therefore newer: Kafka
Journal's replicator can take over, and a person can delete rows. Nodes that refuse times of the far future accept it.

**When the base changes.** What another kind of client wrote meanwhile is newer than what this partition's base would
give to the next action. The offset in `pointer2` shows it: its cell has the time base + offset if a replicator of ours
wrote it, and another one else. Then a new base is made, above the time of that cell; `seen` records it, so that each
writer of another kind is found once. Two kinds of replicators must not run at once: ours would not know in time.

| what happens                                  | what follows                                                         |
|---|---|
| two make the first base                       | one compare-and-set fails, and takes the other's                     |
| a clock is behind                             | the base is above the offset's cell and above the base before it     |
| a replicator pauses, the base changes         | all that it writes is older than what is written with the new base;  |
|                                               | its offset does not count, and it finds the new base                 |
| `pointer2` and `clock` lose a partition's row | it is replicated from its first record, above all that was deleted   |
| only `pointer2` does                          | its new row is older than the delete, so the offset does not appear, |
|                                               | and the replicator stops: it went back                               |

**Stores of our first version** have no table `clock`. There the base is in the year 2112, for all partitions, and it
stays: no present time wins over what has been written, and the tombstones of purges cannot be queried. Their offsets
move by compare-and-set. A new keyspace, filled from the topics, is the way out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from inorder.journal.stores.cassandra_session import CassandraSession

FUTURE_BASE: Final = 1 << 52
"""In the year 2112: no clock of today writes later."""


class WrittenOffset(NamedTuple):
    """A partition's offset, and the time of its cell."""

    offset: int
    written: int


class Clock(NamedTuple):
    """The base of a partition, and the time of the cell that it was made for, if there was one."""

    base: int
    seen: int | None = None

    def micros(self, offset: int) -> int:
        """The time of cells that an action writes."""
        return self.base + offset

    def wrote(self, found: WrittenOffset | None) -> bool:
        """Whether no one else has moved the offset since the base was made.

        >>> Clock(1000, 900).wrote(WrittenOffset(7, 1007)), Clock(1000, 900).wrote(WrittenOffset(5, 900))
        (True, True)
        >>> Clock(1000, 900).wrote(WrittenOffset(9, 2000)), Clock(1000).wrote(None)
        (False, True)
        """
        return found is None or found.written in (self.micros(found.offset), self.seen)


FUTURE: Final = Clock(FUTURE_BASE)


def new_clock(now: int, found: WrittenOffset | None, before: Clock | None = None, *, first: int = 0) -> Clock:
    """The clock from now on: what follows the offset is newer than all that is there.

    `first` is the first offset that will be written, where there is none yet: retention may have taken many before it.

    >>> new_clock(5000, WrittenOffset(10, 4000)).micros(11), new_clock(5000, WrittenOffset(10, 6000)).micros(11)
    (5001, 6001)
    >>> new_clock(5000, None).micros(0), new_clock(5000, WrittenOffset(10, 4000), Clock(9000)).micros(11)
    (5000, 9012)
    """
    if found is None:
        return Clock(now - first if before is None else max(now - first, before.base + 1))
    base = max(now, found.written) - found.offset
    return Clock(base if before is None else max(base, before.base + 1), found.written)


def micros_now() -> int:
    return time.time_ns() // 1000


class PartitionClocks:
    """The clocks of partitions as a process knows them, and whether the store has any."""

    def __init__(self, session: CassandraSession, now: Callable[[], int] = micros_now) -> None:
        self._session = session
        self._now = now
        self._known: dict[tuple[str, int], Clock] = {}

    def known(self, topic: str, partition: int) -> Clock | None:
        """The clock that was read last."""
        return self._known.get((topic, partition)) if self._session.has_clock else FUTURE

    def settle(self, topic: str, partition: int, *, first: int = 0) -> Clock:
        """The clock to write with; makes one where there is none, or where another kind of client has written."""
        if not self._session.has_clock:
            return FUTURE
        place = topic, partition
        while True:
            # The clock first: if the offset turns out to be of a newer one, the compare-and-set fails.
            row = self._session.execute("clock", *place, serial=True).one()
            clock = None if row is None else Clock(row.base, row.seen)
            found = written_offset(self._session.execute("written_offset", *place))
            if clock is not None and clock.wrote(found):
                self._known[place] = clock
                return clock
            made = new_clock(self._now(), found, clock, first=first)
            if clock is None:
                self._session.execute("add_clock", *place, made.base, made.seen, datetime.now(UTC))
            else:
                self._session.execute("set_clock", made.base, made.seen, datetime.now(UTC), *place, clock.base)


def written_offset(answer: Any) -> WrittenOffset | None:
    """The row that the statement `written_offset` has found."""
    row = answer.one()
    return None if row is None or row[0] is None else WrittenOffset(int(row[0]), int(row[1]))
