"""One batch under the lock of its topic: what arrived is deleted, what is refused is set aside, nothing overtakes.

Parts of the batch are sent one after the other, in order. A record that is refused for its content waits, and with it
all later ones of its key, while the rest continues (`parking.py` has the rules). It is tried again within the batch,
after a pause, until its attempts are used up. Then the policy of its topic decides:

| policy  | the record      | later ones of its key                                                        |
|---|---|---|
| `park`  | is set aside    | stay in the table, and are not read until an operator retries or discards it |
| `skip`  | is set aside    | continue                                                                     |
| `block` | stays           | the whole topic rests, as after any error, and is tried again a minute later |

In a topic that is compacted, the last message of a key represents the earlier ones of its batch. When something is
refused the rest of the batch is sent as it is: the earlier messages may be good.

`TopicLock` is a worker's lock on a topic as far as the worker knows, and `LockHeartbeat` renews it while a batch is
being sent. The last part of this file are the decisions, as functions of values.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from inorder.kafka.shard_log import Delivered, Incomplete, ShardLog
from inorder.model.errors import (
    FencedError,
    RejectedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
)
from inorder.model.message import OutboxRow
from inorder.relay.events import BatchProduced, SendCounts
from inorder.relay.options import StrategyOptions, wait_out
from inorder.relay.parking import Order, Refusals, order_of
from inorder.relay.scan import BATCH_BYTES
from inorder.relay.stores.ports import ExceededStore, Exceeding, TopicBacklog, TopicStore

log = logging.getLogger("inorder.relay")

Topics = frozenset[str] | Literal["all"]
"""Topics by name, or all of them."""

BEATS_A_LOCK = 4
"""How often the heartbeat renews a lock in the time after which it is stale."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLockOptions(StrategyOptions):
    """How workers work; `pace.queue` bounds the wait for the broker, `pace.back_off` follows a failure."""

    batch_size: int = 1000
    batch_bytes: int = BATCH_BYTES
    delete_group_size: int = 1000
    lock_seconds: float = 60.0
    compact_topics: Topics = frozenset()
    log_topics: Topics = frozenset()
    on_event: Callable[[BatchProduced], None] = lambda _event: None


@dataclass(slots=True)
class TopicProgress(SendCounts):
    """What a worker has done so far; `published` counts records sent."""

    processed: int = 0
    """Messages deleted after they were sent, or after a later one of their key was sent for them."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What every batch of a worker is sent with."""

    store: TopicStore
    exceeded: ExceededStore
    heartbeat: LockHeartbeat
    worker: UUID
    options: TopicLockOptions
    progress: TopicProgress
    refusals: Refusals


@dataclass(slots=True)
class TopicBatch:
    """Sends one batch, whose rows carry its session, and implements `RefusalEffects` for it."""

    context: BatchContext
    lock: TopicLock
    log: ShardLog
    session: UUID
    rows: Sequence[OutboxRow]
    """What is not settled yet, in order."""
    compacts: bool
    _represents: dict[int, list[int]] = field(default_factory=dict)
    _parts: list[Sequence[OutboxRow]] = field(default_factory=list)
    _waiting: dict[Order, list[OutboxRow]] = field(default_factory=dict)
    _parked: set[Order] = field(default_factory=set)
    _attempts: Counter[int] = field(default_factory=Counter)

    def run(self) -> bool:
        """Sends and settles every row that is not held; False if `stop` was set before the end of a failing batch."""
        if self.compacts:
            self._represents = compact(self.rows)
        self._parts = [[row for row in self.rows if not self.compacts or row.id in self._represents]]
        give_up_at = self._options.clock() + self._options.pace.queue
        while self._parts or self._waiting:
            if self._options.stop.is_set() and self._progress.last_error:
                return False
            if not self._parts:
                self._take_waiting()
            elif rows := self._sift(self._parts.pop()):
                self._send(rows, give_up_at)
        return True

    def _send(self, rows: list[OutboxRow], give_up_at: float) -> None:
        if flawed := next((row for row in rows if row.flaw), None):
            if not self._send_uncompacted():
                self._parts += self.context.refusals.flawed(self, rows, flawed)
            return
        self.lock.require()
        with self.context.heartbeat.keep(self.lock):
            delivery = self.log.publish(rows, b"")
        match delivery:
            case Delivered():
                self._settle(rows)
                self._progress.last_error = ""
            case Incomplete(RejectedError() as error, delivered):
                left = self._undelivered(rows, delivered)
                self._progress.last_error = str(error)
                if not self._send_uncompacted():
                    self._parts += self.context.refusals.refused(self, left, error)
            case Incomplete(TransientError() as error, delivered):
                left = self._undelivered(rows, delivered)
                self.lock.require()  # after a long pause this is the reason, and not the broker
                if _is_unavailable(error) or self._options.clock() > give_up_at:
                    raise error
                wait_out(error, self._progress, self._options, topic=self.lock.topic)
                self._parts.append(left)

    def _sift(self, rows: Iterable[OutboxRow]) -> list[OutboxRow]:
        """The rows that may be sent; those behind a refused one of their key wait with it, or for a later batch."""
        if not self._waiting and not self._parked:
            return list(rows)
        free: list[OutboxRow] = []
        for row in rows:
            order = order_of(row)
            if order not in self._parked:
                self._waiting.get(order, free).append(row)
        return free

    def _send_uncompacted(self) -> bool:
        """Begins again with every row that is left, if the batch was compacted."""
        if not self._represents:
            return False
        self._represents = {}
        self._parts = [self.rows]
        return True

    # What `Refusals` needs of a batch.

    def refuse(self, row: OutboxRow, /) -> int:
        self._attempts[row.id] += 1
        return self._attempts[row.id]

    def hold(self, row: OutboxRow, _retry_at: float, /) -> None:
        """Tried again when the rest of the batch is sent (`_take_waiting`)."""
        self._waiting[order_of(row)] = [row]

    def exceed(self, row: OutboxRow, exceeding: Exceeding, /) -> None:
        self.lock.require()
        self.context.exceeded.exceed(exceeding)
        del self._waiting[order_of(row)]
        if exceeding.parks:
            self._parked.add(order_of(row))
        self.rows = [other for other in self.rows if other.id != row.id]

    def block(self, _rows: Sequence[OutboxRow], error: RejectedError, _seconds: float, /) -> list[OutboxRow]:
        """The topic rests, so that other topics continue."""
        raise error

    def _take_waiting(self) -> None:
        """Tries refused records again, all after one pause."""
        self._options.stop.wait(self._options.pace.back_off)
        self.lock.require()
        self._parts = list(self._waiting.values())
        self._waiting = {}

    def _undelivered(self, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of them arrived; that part is settled."""
        if delivered:
            self._settle([row for row in rows if row.id in delivered])
        return [row for row in rows if row.id not in delivered]

    def _settle(self, rows: Sequence[OutboxRow]) -> None:
        """Deletes what arrived, and repeats a failed delete: sending again would not help."""
        ids = [id for row in rows for id in self._represents.get(row.id, (row.id,))]
        self._progress.published += len(rows)
        while True:
            try:
                with self.lock.confirming():
                    self._delete(ids)
                break
            except FencedError:
                raise
            except TransientError as error:
                if self._options.stop.is_set():
                    raise
                wait_out(error, self._progress, self._options, topic=self.lock.topic)
        gone = set(ids)
        self.rows = [row for row in self.rows if row.id not in gone]

    def _delete(self, ids: list[int]) -> None:
        context, size = self.context, self._options.delete_group_size
        deleted = context.store.delete(self.lock.topic, context.worker, self.session, ids, size)
        self._progress.processed += deleted

    @property
    def _options(self) -> TopicLockOptions:
        return self.context.options

    @property
    def _progress(self) -> TopicProgress:
        return self.context.progress


class TopicLock:
    """One worker's lock on one topic, from `lock` to `unlock`."""

    def __init__(
        self, store: TopicStore, topic: str, worker: UUID, *, lock_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.topic = topic
        self._store = store
        self._worker = worker
        self._lock_seconds = lock_seconds
        self._clock = clock
        self._confirmed_at = clock()
        self._is_lost = False

    def beat(self) -> None:
        """Renews the lock; thread-safe."""
        sent_at = self._clock()
        if self._store.heartbeat(self.topic, self._worker):
            self._confirmed_at = sent_at
        else:
            self._is_lost = True

    def require(self) -> None:
        """Raises `FencedError` if the lock is lost; renews it first if it was last confirmed too long ago."""
        if not self._is_lost and must_renew(self._clock(), self._confirmed_at, self._lock_seconds):
            self.beat()
        if self._is_lost:
            raise FencedError(f"The lock of topic {self.topic!r} was taken from worker {self._worker}.")

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Around a call of the store that renews the lock itself."""
        sent_at = self._clock()
        yield
        self._confirmed_at = sent_at


class LockHeartbeat:
    """Renews a lock while its batch is being sent, on its own thread."""

    def __init__(self, lock_seconds: float) -> None:
        self._seconds = lock_seconds / BEATS_A_LOCK
        self._changed = threading.Condition()
        self._held: TopicLock | None = None
        self._batch = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inorder-heartbeat", daemon=True)
        self._thread.start()

    @contextmanager
    def keep(self, lock: TopicLock) -> Iterator[None]:
        """Renews the lock for as long as the block lasts."""
        self._set(lock)
        try:
            yield
        finally:
            self._set(None)

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _set(self, lock: TopicLock | None) -> None:
        with self._changed:
            self._held = lock
            self._batch += 1
            self._changed.notify_all()

    def _run(self) -> None:
        while (lock := self._next()) is not None:
            try:
                lock.beat()
            except TransientError as error:
                log.warning("relay.heartbeat_failed", extra={"topic": lock.topic, "error": str(error)})

    def _next(self) -> TopicLock | None:
        """The lock to renew, once its batch has been under way for a while; None at the end."""
        with self._changed:
            while not self._is_closed:
                lock, batch = self._held, self._batch
                woken = self._changed.wait(self._seconds if lock else None)
                if lock is not None and not woken and self._batch == batch:
                    return lock
            return None


def _is_unavailable(error: TransientError) -> bool:
    """Whether the topic should rest; one that is being switched opens again within moments."""
    return isinstance(error, TopicUnavailableError) and not isinstance(error, TopicSwitchingError)


def includes(topics: Topics, topic: str) -> bool:
    return topics == "all" or topic in topics


def must_renew(now: float, confirmed_at: float, lock_seconds: float) -> bool:
    """Whether the lock was confirmed so long ago that it must be renewed before anything is sent.

    Half of its time is left then, for the answer and for the send. `confirmed_at` is when the request was sent.
    """
    return now - confirmed_at >= lock_seconds / 2


def compact(rows: Sequence[OutboxRow]) -> dict[int, list[int]]:
    """The last row of each key by id, in order, each with the ids of all rows that it represents.

    A row without a key represents itself. So does every row of a batch in which one is malformed: that one could
    represent good ones.
    """
    if any(row.flaw for row in rows):
        return {row.id: [row.id] for row in rows}
    last = {row.key: row.id for row in rows if row.key is not None}
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row.id if row.key is None else last[row.key], []).append(row.id)
    return dict(sorted(found.items()))


def oldest_wait(state: TopicBacklog, now: datetime) -> float:
    """For how many seconds the oldest message has waited while its topic was not processed; 0 without messages.

    A message may be older than its wait: one that was written long ago and committed now, for example.
    """
    if not state.messages:
        return 0.0
    since = max(state.oldest or LONG_AGO, state.last_processed_at or LONG_AGO)
    return 0.0 if since == LONG_AGO else max(0.0, (now - since).total_seconds())
