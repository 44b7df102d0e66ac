"""The relay's stores in memory: outbox, exceeded rows, registry, membership; they pass the contract suites."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from uuid import UUID

from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard, shard_of
from inorder.relay.leadership.share import MemberRank
from inorder.relay.scan import bytes_of, fitting
from inorder.relay.stores.outbox_store import Complete, marked_page
from inorder.relay.stores.ports import LAST_ID, OTHERS_WINDOW, Exceeding, Key, Origin, Page, Registration, Scan, Setup

_WHOLE = Shard()


class _Table:
    """What the stores of one table share."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.rows: dict[int, OutboxRow] = {}
        self.marks: dict[int, UUID] = {}
        self.open: dict[str, list[OutboxRow]] = {}
        self.last_id = 0
        self.server: str | None = None
        self.session = 1

    def remove(self, id: int) -> OutboxRow | None:
        """Takes a row out, and its mark with it."""
        self.marks.pop(id, None)
        return self.rows.pop(id, None)


class MemoryOutbox:
    """Rows that appear when their transaction ends, with ids that were assigned before."""

    def __init__(self, shard: Shard = _WHOLE, *, beside: MemoryOutbox | None = None) -> None:
        """A store of a new table, or of the one that `beside` has."""
        self._shard = shard
        self._table: _Table = _Table() if beside is None else beside._table
        self._changed = self._table.changed

    def insert(self, transaction: str, topic: str, key: bytes | None, value: bytes | None, *, flaw: str = "") -> int:
        """Adds a row to an open transaction and gives it its id."""
        with self._changed:
            self._table.last_id += 1
            row = OutboxRow(self._table.last_id, topic, key, value, (), None, None, flaw)
            self._table.open.setdefault(transaction, []).append(row)
            return row.id

    def end(self, transaction: str, *, commit: bool = True) -> None:
        """Commits a transaction, or rolls it back."""
        with self._changed:
            rows = self._table.open.pop(transaction, [])
            if commit:
                self._table.rows.update({row.id: row for row in rows})
            self._changed.notify_all()

    def count(self) -> int:
        with self._changed:
            return len(self._table.rows)

    def open_ids(self) -> list[int]:
        """Ids that are given out and whose transaction has not ended."""
        with self._changed:
            return [row.id for rows in self._table.open.values() for row in rows]

    def read(self, scan: Scan, limit: int) -> Page:
        """One look under the lock is one snapshot."""
        with self._changed:
            return self._walk(scan, limit) if scan.walk else self._read_on(scan, limit)

    def holders(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._table.open)

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        with self._changed:
            if session not in (None, self._table.session):
                raise UnreachableError("The connection was replaced in the meantime.")
            found = [id for id in ids if self._table.remove(id) is not None]
            self._changed.notify_all()
            return len(found)

    def session(self) -> int | None:
        with self._changed:
            return self._table.session

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        with self._changed:
            return marked_page(
                within([self._table.rows[id] for id in sorted(ids) if id in self._table.rows], max_bytes)
            )

    def origin(self) -> Origin:
        with self._changed:
            return Origin(self._table.server, self._table.last_id)

    def begin_reads(self) -> Origin:
        """Several relays share this store, so those who simulate sessions pin them themselves."""
        return self.origin()

    def go_back(self, last_id: int, *, server: str | None = None) -> None:
        """Forgets all rows above an id and gives these ids out again, perhaps as another server."""
        with self._changed:
            self._table.rows = {id: row for id, row in self._table.rows.items() if id <= last_id}
            self._table.last_id = last_id
            if server is not None:
                self._table.server = server
                self._table.session += 1

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        with self._changed:
            ids = sorted(id for id in self._table.rows if id > above)
            free = (id for id in ids if self._table.marks.get(id) != leader_id)
            rows = self._marked(leader_id, [id for id in free if self._is_mine(id)][:limit])
            return marked_page(within(rows, max_bytes), limit)

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        with self._changed:
            found = sorted(id for id in ids if id in self._table.rows and self._is_mine(id))
            return marked_page(within(self._marked(leader_id, found), max_bytes))

    def reset(self, leader_id: UUID) -> int:
        with self._changed:
            found = [id for id, mark in self._table.marks.items() if mark == leader_id]
            for id in found:
                del self._table.marks[id]
            return sum(id in self._table.rows for id in found)

    def take(self, id: int) -> OutboxRow | None:
        """Removes one row and gives it to the caller."""
        with self._changed:
            return self._table.remove(id)

    def put_back(self, row: OutboxRow) -> None:
        """Shows a row again under its old id, without a mark."""
        with self._changed:
            self._table.rows[row.id] = row
            self._changed.notify_all()

    def begin_sleep(self) -> bool:
        return True

    def wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait(seconds)

    def end_sleep(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""

    def _read_on(self, scan: Scan, limit: int) -> Page:
        above = sorted(id for id in self._table.rows if id > scan.above)[:limit]
        met = sorted({*above, *(id for id in scan.probes if id in self._table.rows)})
        page = Page(self._ours(met), len(above) >= limit, max(met, default=0), list(self._others(met)))
        return _bounded(page, scan)

    def _walk(self, scan: Scan, limit: int) -> Page:
        if self._shard.is_whole:
            return self._read_on(scan, limit)
        above = sorted(id for id in self._table.rows if id > scan.above)
        rows, others_to = self._ours(above)[:limit], min(scan.above + OTHERS_WINDOW, LAST_ID)
        is_full = len(rows) >= limit
        top = rows[-1].id if is_full else max(self._table.rows, default=0)
        others = [id for id in self._others(above) if id <= others_to]
        return _bounded(Page(rows, is_full, top, others, others_to), scan)

    def _ours(self, ids: Collection[int]) -> list[OutboxRow]:
        return [self._table.rows[id] for id in ids if self._is_mine(id)]

    def _others(self, ids: Collection[int]) -> Iterator[int]:
        return (id for id in ids if not self._is_mine(id))

    def _is_mine(self, id: int) -> bool:
        row = self._table.rows[id]
        return shard_of(row.topic, row.key, row.id, self._shard.count) == self._shard.index

    def _marked(self, leader_id: UUID, ids: list[int]) -> list[OutboxRow]:
        self._table.marks.update(dict.fromkeys(ids, leader_id))
        return [self._table.rows[id] for id in ids]


def within(rows: list[OutboxRow], max_bytes: int, held: frozenset[int] = frozenset()) -> Complete:
    """The first rows that have so many bytes together; those in hand without their content."""
    found = [OutboxRow(row.id, "", None, None, (), None, None) if row.id in held else row for row in rows]
    fresh = [row for row in found if row.id not in held]
    rest = [row.id for row in fresh[fitting(map(bytes_of, fresh), max_bytes) :]]
    return Complete([row for row in found if not rest or row.id < rest[0]], rest)


def _bounded(page: Page, scan: Scan) -> Page:
    found = within(page.rows, scan.max_bytes, scan.held)
    if not found.rest:
        return replace(page, rows=found.rows)
    return replace(page, rows=found.rows, rest=found.rest, is_full=True, top=found.rest[0] - 1)


class MemoryExceeded:
    """Rows that left the outbox, and the keys of one shard that wait for them."""

    def __init__(self, outbox: MemoryOutbox, shard: Shard = _WHOLE, *, beside: MemoryExceeded | None = None) -> None:
        """A new table of exceeded rows, or the one that `beside` has."""
        self._outbox = outbox
        self._shard = shard
        self.rows: dict[int, tuple[OutboxRow, Exceeding]] = {} if beside is None else beside.rows

    def exceed(self, exceeding: Exceeding) -> None:
        """Moves the row if it is still there."""
        row = self._outbox.take(exceeding.row_id)
        if row is not None:
            self.rows[row.id] = (row, exceeding)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        found: dict[Key, tuple[int, ...]] = {}
        for id, (row, exceeding) in sorted(self.rows.items()):
            shard = shard_of(row.topic, row.key, id, self._shard.count)
            if exceeding.parks and row.key is not None and shard == self._shard.index:
                key = (row.topic, row.key)
                found[key] = (*found.get(key, ()), id)
        return found

    def retry(self, id: int) -> None:
        self._outbox.put_back(self.rows.pop(id)[0])

    def discard(self, id: int) -> None:
        del self.rows[id]

    def close(self) -> None:
        """Nothing to close."""


class MemoryRegistry:
    """One table's registration."""

    def __init__(self, outbox: str = "outbox") -> None:
        self._outbox = outbox
        self._lock = Lock()
        self._found: Registration | None = None

    def register(self, wanted: Setup) -> Registration:
        with self._lock:
            if self._found is None:
                self._found = Registration(self._outbox, wanted.group, wanted.strategy, wanted.shards, 1)
            return self._found

    def read(self) -> Registration | None:
        return self._found

    def begin_change(self, wanted: Setup) -> Registration:
        with self._lock:
            found = self._required()
            if found.target is None:
                found = replace(found, epoch=found.epoch + 1, target=wanted)
            if found.target != wanted:
                raise ConfigurationError(f"The relay is being changed to {found.target}, not to {wanted}.")
            self._found = found
            return found

    def finish_change(self) -> Registration:
        """Makes the target what is registered."""
        with self._lock:
            found = self._required()
            if found.target is not None:
                new = found.target
                found = Registration(self._outbox, new.group, new.strategy, new.shards, found.epoch)
            self._found = found
            return found

    def close(self) -> None:
        """Nothing to close."""

    def _required(self) -> Registration:
        if self._found is None:
            raise ConfigurationError(f"No relay is registered for the table {self._outbox!r}.")
        return self._found


@dataclass
class MemoryGroup:
    """Who is alive until when, by one clock."""

    clock: Callable[[], float] = time.monotonic
    known_until: dict[str, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class MemoryMembership:
    """A `Membership` in memory."""

    def __init__(self, group: MemoryGroup, *, instance: str, seconds: float = 3.0) -> None:
        self._group = group
        self._instance = instance
        self._seconds = seconds

    def beat(self) -> MemberRank:
        with self._group.lock:
            now = self._group.clock()
            self._group.known_until[self._instance] = now + self._seconds
            alive = [name for name, until in self._group.known_until.items() if until > now]
        return MemberRank(len(alive), sum(name < self._instance for name in alive))

    def leave(self) -> None:
        with self._group.lock:
            self._group.known_until.pop(self._instance, None)
