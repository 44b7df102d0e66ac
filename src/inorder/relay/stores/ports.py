"""The stores of the relay: what each strategy needs of its tables, whatever the database.

Each strategy has its own protocol: `OutboxStore` for `drain` and for the rows of `polling`, `MarkStore` for
`mark-purge`, `TopicStore` for `topic-lock`, `PollingStore` for offset, missing and exceeded events of `polling`. Then
`ExceededStore` for records that used up their attempts, and `Registry` for the set-up that all instances share.

All of them raise failures of the environment as `TransientError`, after which the next call may connect again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from inorder.model.errors import TransientError
from inorder.model.message import OutboxRow

LAST_ID: Final = 2**63 - 1

OTHERS_WINDOW: Final = 40_000
"""How many ids a walk examines for rows of other shards."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read in one snapshot: some single ids, and everything above one id in id order."""

    above: int
    probes: tuple[int, ...] = ()
    walk: bool = False
    """Whether to walk over rows that were read before: those of other shards must not crowd out ours then."""
    held: frozenset[int] = frozenset()
    """Rows that the caller of a walk has in hand: they are returned without their content."""
    max_bytes: int = LAST_ID
    """The most bytes of rows to return; one row even if it is larger."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one scan found. Rows of other shards are named by their ids, so that they do not count as missing."""

    rows: list[OutboxRow]
    """Those of our shard, in id order; a malformed one has a `flaw`."""
    is_full: bool = False
    """Whether the limit was reached, so that more may wait."""
    top: int = 0
    """Every visible row of ours above `Scan.above` and up to this id is among `rows`."""
    others: Sequence[int] = ()
    others_to: int = LAST_ID
    """Up to which id `others` names all of them."""
    rest: Sequence[int] = ()
    """Rows that were found behind these and not read, because all together have more bytes than wanted.

    Then the page is full. `top` is below the first of them, except after a mark, which has claimed them all.
    """


class Sleeper(Protocol):
    """Waits for publishers."""

    def begin_sleep(self) -> bool:
        """Has publishers notify us from now on; False if that is not possible at the moment."""

    def wait(self, seconds: float) -> bool:
        """Returns True when a publisher notifies, False after `seconds`."""

    def end_sleep(self) -> None:
        """Publishers need not notify us any more."""

    def close(self) -> None:
        """Closes all connections; may be called twice."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a database says of itself; a relay that finds another one than before knows that rows may be lost."""

    server: str | None = None
    """The server and its history: another one after a promotion. None where it has no such name."""
    last_id: int | None = None
    """The last id that was given out; None where the table has no sequence that we may read."""


class PurgingStore(Protocol):
    """Removes published rows; one thread calls it, on a connection of its own."""

    def purge(self, ids: Sequence[int], session: int | None = None) -> int:
        """Deletes rows by id and commits; missing ids are no error. Returns how many rows there were.

        With a session, raises `UnreachableError` and deletes nothing if the one that purges is another. So it does if
        the table was truncated since the session began, and the next session is another one: PostgreSQL knows that by
        the file of the table, MySQL and MariaDB by an AUTO_INCREMENT that went back. SQLite has no TRUNCATE.
        """

    def session(self) -> int | None:
        """The number of the session that purges: the same number is the same server, which gave out each id once.

        None where that cannot be known, as behind a pooler. Sessions that read are opened after it and with it.
        """

    def rows_to_purge(self, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        """Those of these rows that exist, whatever their shard, as the connection that purges sees them."""

    def origin(self) -> Origin:
        """The database that the connection which purges is connected to."""


class OutboxStore(Sleeper, PurgingStore, Protocol):
    """Reads and purges outbox rows.

    The relay calls `read`, `holders` and the three sleep methods from one thread and `purge` from another, so a store
    keeps a connection for each.
    """

    def read(self, scan: Scan, limit: int) -> Page:
        """Rows of the scan in id order, seen by **one** snapshot.

        Reading on, it meets up to `limit` rows of any shard above `scan.above`, and those of the probes that are
        visible; `top` is the last id it met. A walk finds up to `limit` rows of ours; unless it is full, `top` is the
        largest id of the whole table, and `others` names rows up to `OTHERS_WINDOW` ids above `scan.above`.
        """

    def begin_reads(self) -> Origin:
        """Begins the reads of a term, all on one session; returns the database that it is connected to.

        What a term knows of ids holds for one server: a promoted replica may give them out again. So once the session
        is gone, reads raise `UnreachableError` until this is called again.
        """

    def holders(self) -> frozenset[str] | None:
        """Names of the transactions that may hold ids not visible yet, or None if the database cannot name them.

        A transaction must be named from before it takes its first id until after its rows are visible or gone.
        """


class MarkStore(Sleeper, PurgingStore, Protocol):
    """Claims rows by marking them with the id of a leader.

    The relay calls `purge` from one thread and all other methods from another.
    """

    def begin_reads(self) -> Origin:
        """As in `OutboxStore`, for marks."""

    def mark(self, leader_id: UUID, limit: int, *, above: int = 0, max_bytes: int = LAST_ID) -> Page:
        """Claims the oldest rows above an id that this leader has not marked, atomically.

        Rows that an earlier leader marked are claimed too. The page is full if there were `limit` of them, and `top` is
        the last one that was claimed; those of `rest` are read by `mark_again`. When the answer to the commit is lost
        it raises `TransientError`; the rows may be marked then, and only a new leader id finds them again.
        """

    def mark_again(self, leader_id: UUID, ids: Sequence[int], max_bytes: int = LAST_ID) -> Page:
        """Claims those of the rows that are of our shard, regardless of their mark, atomically.

        For rows that waited and may have been changed meanwhile: a row that was set aside comes back without a mark.
        """

    def holders(self) -> frozenset[str] | None:
        """As in `OutboxStore`."""

    def reset(self, leader_id: UUID) -> int:
        """Removes this leader's mark from every row that still carries it; returns how many there were.

        It ends the reads of the term, and may use another session.
        """


@dataclass(frozen=True, slots=True)
class TopicBacklog:
    """What waits for one topic, and who works on it."""

    topic: str
    messages: int = 0
    oldest: datetime | None = None
    """When the oldest message was written; None if there is none, or if it has no time."""
    last_processed_at: datetime | None = None
    """When the topic was last sent completely, or found empty."""
    locked_by: str | None = None
    locked_at: datetime | None = None
    error: bool = False
    """Whether it rests after an error, until its lock is stale."""
    retries: int = 0
    """Errors since it was last sent completely."""


class TopicStore(Protocol):
    """Reads, stamps and deletes messages of the deimos layout under the lock of their topic.

    A worker calls it from its own thread, and `heartbeat` from a second one; each worker has its own store. A lock
    belongs to the worker that its row names. Only the database's clock decides when it is stale; then any worker may
    take it, and the old holder gets `FencedError`. After a `TransientError` the request may have been executed, and may
    be repeated.
    """

    def check(self) -> None:
        """Raises `ConfigurationError` unless both tables exist with the required columns."""

    def topics(self) -> list[str]:
        """Topics that have messages; those of parked keys count."""

    def lock(self, topic: str, worker: UUID) -> bool:
        """Takes the lock if it is free and the topic does not rest, if it is stale, or if it is ours; one UPDATE.

        Inserts the lock row if there is none.
        """

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        """The oldest messages of the topic by id, in one snapshot; those of parked keys are left out."""

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        """Writes the session of a batch into its messages and renews the lock; returns how many there were.

        `FencedError` if the lock is not ours; nothing is stamped then.
        """

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        """Deletes those of the messages that carry the session, one group per transaction; returns how many there were.

        Each transaction renews the lock. `FencedError` if it is not ours; what earlier groups deleted stays deleted.
        """

    def heartbeat(self, topic: str, worker: UUID) -> bool:
        """Renews the lock; False if it is not ours."""

    def unlock(self, topic: str, worker: UUID) -> None:
        """Releases the lock after the topic was sent completely, and clears its errors; nothing if it is not ours."""

    def fail(self, topic: str, worker: UUID) -> None:
        """Releases the lock after an error: the topic rests until it would be stale; nothing if it is not ours."""

    def touch_empty(self, except_topics: Collection[str]) -> None:
        """Records for all other topics that are not locked that they were empty."""

    def pending(self) -> list[TopicBacklog]:
        """Every topic that has messages or a lock row, by name."""

    def close(self) -> None:
        """Closes the connection; may be called twice."""


@dataclass(frozen=True, slots=True)
class MissingEvent:
    """An id that the offset has passed and that is not delivered: not visible yet, refused, or behind a refused one."""

    id: int
    retry_count: int = 0
    exception_thrown: bool = False
    """Whether its record was refused by the broker."""
    missed_at: datetime | None = None
    """When it was recorded; the store fills it in."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The result of one round; all of it is written in one transaction, in the order of these fields."""

    from_offset: int
    to_offset: int
    """The offset moves from the one to the other; if they are equal it is only checked."""
    missed: Sequence[MissingEvent] = ()
    """New rows of missing; an id that is there already stays as it is."""
    failed: Sequence[int] = ()
    """In missing: retry_count + 1, exception_thrown becomes true."""
    waited: Sequence[int] = ()
    """In missing: retry_count + 1."""
    delivered: Sequence[int] = ()
    """Leave missing, and exceeded too if they are there: delivered, or proven never to be committed."""
    exceeded: Sequence[tuple[int, str]] = ()
    """(id, reason): from missing to exceeded. An id that is not in missing, nor in `missed`, is left alone.

    A reason begins with the code of its error if there is one, as in `RECORD-001: too large`: operators filter by it.
    """


@dataclass(frozen=True, slots=True)
class PollingState:
    """How far the relay has come."""

    offset: int
    newest_id: int
    """The largest id of the table; 0 if it is empty."""
    missing: int
    exceeded: int
    oldest_missing: datetime | None
    behind: int
    """How many rows there are above the offset."""


class OffsetSetBackError(TransientError):
    """The offset is below the one that this term began with: an operator set it, or the database lost commits."""


class PollingStore(Protocol):
    """Offset, missing and exceeded events of the trendyol layout; always on the primary database.

    One thread calls it. The rows themselves are read through `OutboxStore`.
    """

    def check(self) -> None:
        """Raises `ConfigurationError` unless all tables exist with their columns, and the offset has one row."""

    def offset(self) -> int:
        """Every id up to it is delivered, recorded in missing or in exceeded, or was never committed."""

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        """The missing events above an id, by id, each once, even if a table without a primary key repeats one."""

    def parked(self) -> Mapping[Key, tuple[int, ...]]:
        """Topic and key of every exceeded event whose row is visible and has a key, each with those events' ids, by id.

        Whether such a key really waits depends on the policy of its topic, which the relay knows. Events that the
        original tool gave up have no reason and are left out: their keys have long continued.
        """

    def settle(self, settlement: Settlement) -> None:
        """Writes it all, in one transaction that holds the row of the offset from its first statement to its end.

        `FencedError` if the offset is neither `from_offset` nor `to_offset`, and nothing is written then;
        `OffsetSetBackError` if it is below both: no instance moves it back, so only a new term knows more. After a lost
        answer to the commit the caller settles the same again: an offset that has moved proves that it was done. If the
        offset does not move, repeating it changes nothing, except that retry counts may be one too high.
        """

    def state(self) -> PollingState: ...

    def close(self) -> None:
        """Closes the connection; may be called twice."""


Key = tuple[str, bytes]
"""A topic and a key: what is kept in order."""


@dataclass(frozen=True, slots=True)
class Exceeding:
    """The decision that one outbox row has used up its attempts; the marker carries it before it is executed."""

    row_id: int
    attempts: int
    code: str
    reason: str
    parks: bool
    """Whether the row's key waits until an operator retries or discards the row."""


class ExceededStore(Protocol):
    """Records that used up their attempts, in the database of the outbox. The thread of the loop calls it.

    It may belong to one shard; then it names only the parked keys of that shard, whose owner alone may release them.
    """

    def exceed(self, exceeding: Exceeding) -> None:
        """Moves the row out of the outbox and parks its key, in one transaction; repeating it changes nothing."""

    def parked(self) -> Mapping[Key, tuple[int, ...]]:
        """The parked keys, each with the ids of its exceeded rows."""

    def close(self) -> None:
        """Closes the connection; may be called twice."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all instances of one relay must agree on."""

    group: str
    strategy: str
    shards: int

    def __str__(self) -> str:
        return f"group {self.group!r}, strategy {self.strategy!r}, shards {self.shards}"


@dataclass(frozen=True, slots=True)
class Registration:
    """What is registered for an outbox table."""

    outbox: str
    group: str
    strategy: str
    shards: int
    epoch: int
    """Counts changes, from 1."""
    target: Setup | None = None
    """What it is being changed to; None while it is steady."""

    @property
    def setup(self) -> Setup:
        return Setup(self.group, self.strategy, self.shards)


class Registry(Protocol):
    """The registration of one outbox table, in its database."""

    def register(self, wanted: Setup) -> Registration:
        """Registers the set-up if none is; returns what is registered, which may be another one."""

    def read(self) -> Registration | None:
        """What is registered, if anything is."""

    def begin_change(self, wanted: Setup) -> Registration:
        """Records the target and increments the epoch; the same target resumes, another one meanwhile is refused."""

    def finish_change(self) -> Registration:
        """Makes the target the registered set-up; changes nothing if no change was begun."""
