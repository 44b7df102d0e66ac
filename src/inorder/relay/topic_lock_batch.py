"""One batch under one lock: what arrived is deleted, what is refused is set aside, and nothing overtakes.

Parts of the batch are sent one after the other, the first one first. A record that is refused for its content waits,
and with it all later ones of its key, while the rest goes on. It is tried again after a pause, until its attempts are
used up. Then the policy of its topic decides:

| policy  | the record      | later ones of its key                                                       |
|---|---|---|
| `park`  | is set aside    | stay in the table, and are not read until somebody retries or discards it   |
| `skip`  | is set aside    | go on                                                                       |
| `block` | stays           | the whole topic rests, as after any error, and is tried again a minute later |

In a topic that is compacted, the last message of a key stands for the earlier ones of its batch. When something is
refused the rest of the batch is sent as it is: the earlier messages may be good.
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
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import Pace
from inorder.relay.parking import Order, Policy, halves, order_of
from inorder.relay.stores.ports import ExceededStore, Exceeding, TopicState, TopicStore

# Our lock on one topic as far as we know it, and the heart that keeps it while a batch is on the way.

log = logging.getLogger("inorder.relay")

BEATS_A_LOCK = 4
"""How often the heart beats in the time after which a lock is stale."""


class Hold:
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
        """Renews the lock; any thread may."""
        asked_at = self._clock()
        if self._store.heartbeat(self.topic, self._worker):
            self._confirmed_at = asked_at
        else:
            self._is_lost = True

    def require(self) -> None:
        """Raises `FencedError` if the lock is known to be lost, and asks for it if it may be."""
        if not self._is_lost and must_ask(self._clock(), self._confirmed_at, self._lock_seconds):
            self.beat()
        if self._is_lost:
            raise FencedError(f"The lock of topic {self.topic!r} was taken from worker {self._worker}.")

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Around a call of the store that renews the lock by itself."""
        asked_at = self._clock()
        yield
        self._confirmed_at = asked_at


class Heart:
    """Beats for a hold while its batch is on the way, on a thread of its own."""

    def __init__(self, lock_seconds: float) -> None:
        self._seconds = lock_seconds / BEATS_A_LOCK
        self._changed = threading.Condition()
        self._hold: Hold | None = None
        self._batch = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="inorder-heart", daemon=True)
        self._thread.start()

    @contextmanager
    def beating(self, hold: Hold) -> Iterator[None]:
        """Keeps the lock for as long as the block lasts."""
        self._set(hold)
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

    def _set(self, hold: Hold | None) -> None:
        with self._changed:
            self._hold = hold
            self._batch += 1
            self._changed.notify_all()

    def _run(self) -> None:
        while (hold := self._next()) is not None:
            try:
                hold.beat()
            except TransientError as error:
                log.warning("relay.heartbeat_failed: %s", error, extra={"topic": hold.topic})

    def _next(self) -> Hold | None:
        """The hold to beat for, once one has been on its way for a while; None at the end."""
        with self._changed:
            while not self._is_closed:
                hold, batch = self._hold, self._batch
                woken = self._changed.wait(self._seconds if hold else None)
                if hold is not None and not woken and self._batch == batch:
                    return hold
            return None


@dataclass(frozen=True, slots=True)
class Means:
    """What every batch of a worker is sent with."""

    store: TopicStore
    exceeded: ExceededStore
    heart: Heart
    worker: UUID
    stop: threading.Event
    clock: Callable[[], float]
    policy: Callable[[str], Policy]
    pace: Pace
    max_attempts: int
    delete_group_size: int


@dataclass(slots=True)
class TopicProgress:
    """What workers have done so far."""

    published: int = 0
    """Records sent."""
    processed: int = 0
    """Messages deleted after they were sent, or after another one was sent that stands for them."""
    exceeded: int = 0
    last_error: str = ""


@dataclass(slots=True)
class Sending:
    """The way of one batch whose rows carry its session."""

    means: Means
    progress: TopicProgress
    hold: Hold
    log: ShardLog
    session: UUID
    rows: Sequence[OutboxRow]
    """What is not settled yet, in order."""
    compacts: bool
    _stands_for: dict[int, list[int]] = field(default_factory=dict)
    _parts: list[Sequence[OutboxRow]] = field(default_factory=list)
    _waiting: dict[Order, list[OutboxRow]] = field(default_factory=dict)
    _parked: set[Order] = field(default_factory=set)
    _attempts: Counter[int] = field(default_factory=Counter)

    def run(self) -> bool:
        """Sends and settles all that may go; False where it was told to stop before the end."""
        if self.compacts:
            self._stands_for = compacted(self.rows)
        self._parts = [[row for row in self.rows if not self.compacts or row.id in self._stands_for]]
        give_up_at = self.means.clock() + self.means.pace.queue
        while self._parts or self._waiting:
            if self.means.stop.is_set() and self.progress.last_error:
                return False
            if not self._parts:
                self._take_waiting()
            elif rows := self._sifted(self._parts.pop()):
                self._send(rows, give_up_at)
        return True

    def _send(self, rows: list[OutboxRow], give_up_at: float) -> None:
        if flawed := next((row for row in rows if row.flaw), None):
            self._attempts[flawed.id] = self.means.max_attempts
            self._refused(rows, RejectedError(f"Message {flawed.id} is malformed: {flawed.flaw}", row_id=flawed.id))
            return
        self.hold.require()
        with self.means.heart.beating(self.hold):
            delivery = self.log.publish(rows, b"")
        match delivery:
            case Delivered():
                self._settle(rows)
                self.progress.last_error = ""
            case Incomplete(RejectedError() as error, delivered):
                self._refused(self._undelivered(rows, delivered), error)
            case Incomplete(TransientError() as error, delivered):
                left = self._undelivered(rows, delivered)
                self.hold.require()  # after a long pause this is the reason, and not the broker
                if _is_long_away(error) or self.means.clock() > give_up_at:
                    raise error
                self._wait_out(error)
                self._parts.append(left)

    def _sifted(self, rows: Iterable[OutboxRow]) -> list[OutboxRow]:
        """The rows that may go; those behind a refused one of their key wait with it, or are left to a later batch."""
        if not self._waiting and not self._parked:
            return list(rows)
        free: list[OutboxRow] = []
        for row in rows:
            order = order_of(row)
            if order not in self._parked:
                self._waiting.get(order, free).append(row)
        return free

    def _refused(self, rows: list[OutboxRow], error: RejectedError) -> None:
        self.progress.last_error = str(error)
        if self._stands_for:
            self._stands_for = {}
            self._parts = [self.rows]
            return
        guilty = rows[0] if len(rows) == 1 else next((row for row in rows if row.id == error.row_id), None)
        if guilty is None:
            self._parts += halves(rows)[::-1]
            return
        self._attempts[guilty.id] += 1
        policy, attempts = self.means.policy(guilty.topic), self._attempts[guilty.id]
        log.warning("relay.refused: %s", error, extra={"row": guilty.id, "attempts": attempts, "policy": policy})
        if policy == "block":
            raise error
        self._parts.append([row for row in rows if row is not guilty])
        if attempts < self.means.max_attempts:
            self._waiting[order_of(guilty)] = [guilty]
        else:
            self._exceed(guilty, error, parks=policy == "park" and guilty.key is not None and guilty.topic != "")

    def _exceed(self, row: OutboxRow, error: RejectedError, *, parks: bool) -> None:
        self.hold.require()
        attempts = min(self._attempts[row.id], self.means.max_attempts)
        self.means.exceeded.exceed(Exceeding(row.id, attempts, error.code, error.message, parks))
        if parks:
            self._parked.add(order_of(row))
        self.rows = [other for other in self.rows if other.id != row.id]
        self.progress.exceeded += 1
        log.error("relay.exceeded: %s", error.message, extra={"row": row.id, "parks": parks})

    def _take_waiting(self) -> None:
        """Tries refused records again, all after one pause."""
        self.means.stop.wait(self.means.pace.back_off)
        self.hold.require()
        self._parts = list(self._waiting.values())
        self._waiting = {}

    def _undelivered(self, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of them arrived; that part is settled."""
        if delivered:
            self._settle([row for row in rows if row.id in delivered])
        return [row for row in rows if row.id not in delivered]

    def _settle(self, rows: Sequence[OutboxRow]) -> None:
        """Deletes what arrived, and tries that again for as long as it takes: sending again is no way out."""
        ids = [id for row in rows for id in self._stands_for.get(row.id, (row.id,))]
        self.progress.published += len(rows)
        while True:
            try:
                with self.hold.confirming():
                    self._delete(ids)
                break
            except FencedError:
                raise
            except TransientError as error:
                if self.means.stop.is_set():
                    raise
                self._wait_out(error)
        gone = set(ids)
        self.rows = [row for row in self.rows if row.id not in gone]

    def _delete(self, ids: list[int]) -> None:
        size = self.means.delete_group_size
        self.progress.processed += self.means.store.delete(self.hold.topic, self.means.worker, self.session, ids, size)

    def _wait_out(self, error: TransientError) -> None:
        self.progress.last_error = str(error)
        log.warning("relay.waiting: %s", error, extra={"code": error.code, "topic": self.hold.topic})
        self.means.stop.wait(self.means.pace.back_off)


def _is_long_away(error: TransientError) -> bool:
    """Whether the topic had better rest; one that is being switched is open again in a moment."""
    return isinstance(error, TopicUnavailableError) and not isinstance(error, TopicSwitchingError)


# What the strategy `topic-lock` decides, as functions of values.

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
