"""The relay loop of one shard: claim a batch, publish it in order, settle it, repeat while this instance leads.

    lead ──▶ take over (fence, settle what earlier owners published) ──▶ claim ──▶ publish ──▶ settle
      ▲                                                                   ▲                      │
      │                                                                   └── while leading ◀────┘
      └── any error ends the term: wait, lead again, take over again

`LeaderLoop` is the outer circle, the same for every strategy with one owner. `RelayLoop` is the inner one for the
strategies that claim rows, `drain` and `mark-purge`; `polling.py` has its own. `BatchPublisher` sends one batch, in
parts where a record is refused and again where the broker fails.

How rows are claimed and removed is the strategy's (`drain.py`, `mark_purge.py`). What a term must remember is in
`term.py`, and what happens to refused records in `parking.py`.

A transaction has a time limit, so on a slow network a batch may be too large to ever get through. A batch that failed
for no fault of a record or topic is therefore sent in halves, the halves in halves, until one is committed; from then
on parts grow again (`SendLimit`). The limit outlives the term, because an unknown outcome ends it.

An error that no one foresaw must not end the relay because of one row. Where rows are decoded and handed to the client,
it becomes the row's flaw or refusal there (`outbox/layouts/rows.py`, `kafka/sender.py`). Anything else that `publish`
raises ends the term, since the log may be in any state, and `Suspects` halves what is published until a single row is
found to cause it. That row is set aside with the last line of the traceback as its reason.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar
from uuid import UUID, uuid4

from inorder.kafka.shard_log import Delivered, Delivery, Incomplete, ShardLog
from inorder.model.errors import (
    FencedError,
    InorderError,
    KeyPausedError,
    RejectedError,
    TopicPausedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
    last_line,
)
from inorder.model.message import OutboxRow
from inorder.relay.events import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    RateMeter,
    SendCounts,
    notify,
)
from inorder.relay.leadership.lease import Lease
from inorder.relay.marker import markable
from inorder.relay.options import LoopOptions, wait_out
from inorder.relay.parking import RefusalEffects, Refusals
from inorder.relay.scan import IDLE_SWEEP_SECONDS, bytes_of, fitting
from inorder.relay.stores.ports import ExceededStore
from inorder.relay.term import Batch, Strategy, Term

log = logging.getLogger("inorder.relay")

AnyTerm = TypeVar("AnyTerm", bound="LeaderTerm")


class LeaderLoop(ABC, Generic[AnyTerm]):
    """Runs one shard until `stop` is set. Failures of the environment are waited out and never counted."""

    def __init__(self, leadership: Leadership, options: LoopOptions) -> None:
        self.progress = leadership.progress
        self._leadership = leadership
        self._options = options
        self._term: AnyTerm | None = None

    def run(self) -> None:
        """Returns after `stop` is set and everything published is settled; raises errors that need an operator."""
        try:
            while not self._options.stop.is_set():
                try:
                    self._lead()
                except FencedError as error:
                    self._leadership.accept_fence(error)
                except TransientError as error:
                    wait_out(error, self.progress, self._options)
        finally:
            self._leadership.resign()

    def _lead(self) -> None:
        """One term, from the fence to the first error or the loss of the lease."""
        self._options.require_server()
        if not self._leadership.leads():
            self._leadership.revoke()
            self._options.stop.wait(self._options.pace.check)
            return
        term = self._term = self._new_term()
        try:
            term.take_over()
            self._options.confirm()
            self._leadership.begin_term(term.leader_id)
            while self._leadership.leads() and not self._options.stop.is_set():
                self._step(term)
                self._leadership.read_meter()
        finally:
            self.progress.leader_id = self._term = None
            self._before_end()
            term.close()

    @abstractmethod
    def _new_term(self) -> AnyTerm:
        """A term with a new leader id."""

    @abstractmethod
    def _step(self, term: AnyTerm) -> None:
        """One batch or round, or a pause; called again and again while leading."""

    def _before_end(self) -> None:
        """Called before a term is closed."""

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; thread-safe."""
        term = self._term
        return term.in_flight() if term else ()


NOT_ARBITRATED = (
    'relay.leadership = "none" has no election, so the relay ends rather than take the shard back. Either a second '
    "relay of this group runs, or this one was paused for so long that the broker ended its transaction. Run one "
    "instance, or choose another leadership, and start it again."
)

LULL_ROWS = 1
"""A sleeping relay that finds no more rows than this at once stays asleep while it publishes them: rows arrive one by
one, and it would fall asleep again after each. Publishers keep notifying, which is expensive only for many of them."""


class RelayLoop(LeaderLoop[Term]):
    """Runs one shard with a strategy that claims rows: `drain` or `mark-purge`."""

    def __init__(
        self, strategy: Strategy, exceeded: ExceededStore, shard: ShardLog, lease: Lease, options: LoopOptions
    ) -> None:
        leadership = Leadership(lease, options, RelayProgress())
        super().__init__(leadership, options)
        self._strategy = strategy
        self._exceeded = exceeded
        self._shard = shard
        self._empty_reads = 0
        self._is_asleep = False
        self._was_notified = False
        self._was_paused = False
        self._publisher = BatchPublisher(leadership, Refusals(options, self.progress), options)

    def _new_term(self) -> Term:
        # A term reads through sessions that it opens after its fence: one that was idle since an earlier term may be on
        # a server that is no longer the primary, and show rows that others published and purged since.
        self._strategy.store.close()
        leader_id = uuid4()
        claims, size = self._strategy.claims(leader_id), self._strategy.batch_size
        return Term(leader_id, claims, self._exceeded, self._shard, batch_size=size, options=self._options)

    def _step(self, term: Term) -> None:
        if self._is_paused():
            self._options.stop.wait(self._options.pace.poll)
            return
        for waiting in term.due():
            self._publisher.send(term, waiting)
            if self._options.stop.is_set():
                return
        batch = term.claim()
        if batch.rows:
            if len(batch.rows) > LULL_ROWS:
                self._wake_up()
            self._publisher.send(term, batch)
            self._empty_reads = 0
        else:
            self._rest(term, batch)

    def _is_paused(self) -> bool:
        """Whether an operator has paused the shard, which is logged when it changes."""
        reason = self._options.pause()
        if bool(reason) != self._was_paused:
            self._was_paused = bool(reason)
            fields = {"shard": self._options.shard_index, "reason": reason}
            if reason:
                log.warning("relay.shard_paused", extra=fields)
            else:
                log.info("relay.shard_resumed", extra=fields)
        return bool(reason)

    def _rest(self, term: Term, empty: Batch) -> None:
        """Waits for rows: asleep, if publishers can wake us, else by reading again soon.

        Falling asleep is followed by one more read, because what was committed just before woke nothing.
        """
        if empty.others_move:  # writers to other shards would wake us for nothing
            self._wake_up()
        elif self._is_asleep:
            self._doze(term)
            return
        elif self._strategy.store.begin_sleep():
            self._is_asleep = True
            return
        self._options.stop.wait(self._options.pace.brief(self._empty_reads))
        self._empty_reads += 1

    def _doze(self, term: Term) -> None:
        """Waits for a notification, and interrupts the wait for what depends on time alone.

        After a notification that led to no row it waits only until the next sweep may look for one.
        """
        options, pace = self._options, self._options.pace
        until = options.clock() + (min(IDLE_SWEEP_SECONDS, pace.asleep) if self._was_notified else pace.asleep)
        self._was_notified = False
        while options.clock() < until:
            if self._strategy.store.wait(term.rest_seconds(pace.poll)):
                self._was_notified = True
                return
            self._leadership.read_meter()
            if options.stop.is_set() or not self._leadership.leads() or term.something_waits():
                return

    def _before_end(self) -> None:
        self._wake_up()

    def _wake_up(self) -> None:
        """Tells publishers that they need not notify; with a broken connection they stop by themselves."""
        if self._is_asleep:
            self._is_asleep = False
            try:
                self._strategy.store.end_sleep()
            except TransientError as error:
                log.info("relay.sleep_ended", extra={"error": str(error)})


class BatchPublisher:
    """Publishes the batches of one loop, in order."""

    def __init__(
        self, leadership: Leadership, refusals: Refusals, options: LoopOptions, *, most_tries: int | None = None
    ) -> None:
        """A batch is given up after `pace.queue` seconds of failures of the broker, or after `most_tries` of them."""
        self._leadership = leadership
        self._progress = leadership.progress
        self._refusals = refusals
        self._options = options
        self._most_tries = most_tries
        self._limit = SendLimit()
        self._suspects = Suspects()

    def send(self, term: PublishingTerm, batch: Batch) -> bool:
        """Publishes every row of the batch that is not held; in parts, if an unknown record in it is refused.

        False if `stop` was set before the end.
        """
        parts: list[Sequence[OutboxRow]] = [batch.rows]
        give_up_at, tries = self._options.clock() + self._options.pace.queue, 0
        while parts and not self._options.stop.is_set():
            rows = self._suspects.with_flaws(term.sift(parts.pop()))
            if not rows:
                continue
            if flawed := next((row for row in rows if row.flaw), None):
                parts += self._refusals.flawed(term, rows, flawed)
                continue
            rows, later = self._cut(rows)
            parts += later
            match self._publish(term, replace(batch, rows=rows)):
                case Delivered():
                    self._limit = self._limit.succeeded(rows)
                    self._suspects.succeeded(rows)
                    self._progress.published += len(rows)
                    self._progress.last_error = ""
                case Incomplete(RejectedError() as error, delivered):
                    parts += self._refusals.refused(term, self._undelivered(term, rows, delivered), error)
                case Incomplete(TopicUnavailableError() | KeyPausedError() as error, delivered):
                    parts.append(self._hold_back(term, self._undelivered(term, rows, delivered), error))
                case Incomplete(TransientError() as error, delivered, is_under_way=is_under_way):
                    parts.append(self._undelivered(term, rows, delivered))
                    tries += 1
                    if not is_under_way:
                        self._limit = self._limit.failed(rows)
                    wait_out(error, self._progress, self._options)
                    if self._gives_up(tries, give_up_at):
                        raise error
        return not parts

    def _cut(self, rows: list[OutboxRow]) -> tuple[list[OutboxRow], list[list[OutboxRow]]]:
        """The rows to publish now, and those that follow, last part first."""
        most = markable(rows)
        now, later = self._limit.cut(rows[:most])
        now, last = self._suspects.cut(now)
        return now, [part for part in (rows[most:], later, last) if part]

    def _publish(self, term: PublishingTerm, batch: Batch) -> Delivery:
        try:
            return term.publish(batch)
        except UnknownOutcomeError:
            self._limit = self._limit.failed(batch.rows)
            raise
        except InorderError:
            raise
        except Exception as error:
            log.exception("relay.publish_failed", extra={"rows": len(batch.rows), "first": batch.rows[0].id})
            self._suspects.failed(batch.rows, error)
            raise UnknownOutcomeError(f"Publishing {len(batch.rows)} rows failed: {last_line(error)}") from error

    def _gives_up(self, tries: int, give_up_at: float) -> bool:
        """Another instance may own the shard by now, and not every log would stop us."""
        is_over = self._most_tries is not None and tries > self._most_tries
        return is_over or not self._leadership.leads() or self._options.clock() > give_up_at

    def _undelivered(self, term: PublishingTerm, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of a batch arrived; that part is settled."""
        if not delivered:
            return rows
        term.settle_delivered([row for row in rows if row.id in delivered])
        self._progress.published += len(delivered)
        return [row for row in rows if row.id not in delivered]

    def _hold_back(
        self, term: PublishingTerm, rows: list[OutboxRow], error: TopicUnavailableError | KeyPausedError
    ) -> list[OutboxRow]:
        """Holds a topic, or rows of paused keys as if they were refused; returns the rows that are left to sift."""
        if isinstance(error, TopicUnavailableError):
            self._hold_topic(term, error)
            return rows
        retry_at, others = self._options.clock() + self._options.pace.topic, list[OutboxRow]()
        for row in rows:
            if row.key is not None and (row.topic, row.key) in error.keys:
                term.hold(row, retry_at)
            else:
                others.append(row)
        return others

    def _hold_topic(self, term: PublishingTerm, error: TopicUnavailableError) -> None:
        self._progress.last_error = str(error)
        if not isinstance(error, TopicPausedError):  # the routes log that, once
            log.warning("relay.topic_waits", extra={"topic": error.topic, "error": str(error), "code": error.code})
        pace = self._options.pace
        wait = pace.switch if isinstance(error, TopicSwitchingError) else pace.topic
        term.hold_topic(error.topic, self._options.clock() + wait)


LEAST_BYTES = 16 * 1024
"""What is smaller is not cut: its size is not why it failed, and an outage must not lead to tiny transactions."""


@dataclass(frozen=True, slots=True)
class SendLimit:
    """How many bytes are published together; None while nothing shows that a batch may be too large."""

    most: int | None = None
    at_first: int = 0
    """The size that failed first; once parts are as large again there is no limit."""

    def cut(self, rows: list[OutboxRow]) -> tuple[list[OutboxRow], list[OutboxRow]]:
        """The rows to publish now, at least one, and those that follow."""
        if self.most is None:
            return rows, []
        count = fitting(map(bytes_of, rows), self.most)
        return rows[:count], rows[count:]

    def failed(self, rows: Sequence[OutboxRow]) -> SendLimit:
        """The limit after a part failed for no fault of a record or topic."""
        size = sum(map(bytes_of, rows))
        if size <= LEAST_BYTES:
            return self
        return SendLimit(max(LEAST_BYTES, size // 2), max(self.at_first, size))

    def succeeded(self, rows: Sequence[OutboxRow]) -> SendLimit:
        """The limit after a part was committed: a quarter more if the part filled at least half of it.

        Each part that is too large costs the whole time limit, so it grows slowly.
        """
        if self.most is None or sum(map(bytes_of, rows)) < self.most // 2:
            return self
        more = self.most + self.most // 4
        return SendLimit() if more >= self.at_first else replace(self, most=more)


@dataclass(slots=True)
class Suspects:
    """Finds the row that makes `publish` fail in a way that no one foresaw, by publishing ever fewer rows at once."""

    most: int | None = None
    """How many rows are published together; None while nothing is suspected."""
    flaws: dict[int, str] = field(default_factory=dict)
    """What is wrong with the rows that were found, by id."""

    def with_flaws(self, rows: list[OutboxRow]) -> list[OutboxRow]:
        """The rows, with the flaws of those that were found; each is named once, so that a repaired row is tried."""
        if not self.flaws:
            return rows
        return [row._replace(flaw=self.flaws.pop(row.id)) if row.id in self.flaws else row for row in rows]

    def cut(self, rows: list[OutboxRow]) -> tuple[list[OutboxRow], list[OutboxRow]]:
        """The rows to publish now, and those that follow."""
        return rows[: self.most], [] if self.most is None else rows[self.most :]

    def failed(self, rows: Sequence[OutboxRow], error: Exception) -> None:
        """These rows were published in vain; one of them is to blame."""
        if len(rows) == 1:
            self.flaws[rows[0].id] = f"publishing it failed ({last_line(error)})"
            self.most = None
        else:
            self.most = len(rows) // 2

    def succeeded(self, rows: Sequence[OutboxRow]) -> None:
        """The rows are innocent; the next ones are tried in larger parts, until all go at once."""
        if self.most is not None:
            self.most = 2 * self.most if len(rows) >= self.most else None


class PublishingTerm(RefusalEffects, Protocol):
    """A term as the publisher of its batches uses it."""

    def sift(self, rows: Sequence[OutboxRow], /) -> list[OutboxRow]:
        """The rows that may be published now; those of held keys and topics wait."""

    def publish(self, batch: Batch, /) -> Delivery:
        """Sends the batch with a marker, as `ShardLog.publish`, and settles it."""

    def settle_delivered(self, rows: Sequence[OutboxRow], /) -> None:
        """Settles rows that arrived, although the rest of their batch did not."""

    def hold_topic(self, topic: str, retry_at: float, /) -> None:
        """Holds everything of a topic until `retry_at`."""


class LeaderTerm(Protocol):
    """One term of owning a shard, from the fence to the first error."""

    @property
    def leader_id(self) -> UUID: ...

    def take_over(self) -> int:
        """Fences earlier owners and settles what they had published."""

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; thread-safe."""

    def close(self) -> None:
        """Ends the term; nothing more is sent."""


@dataclass(slots=True)
class RelayProgress(SendCounts):
    """What the loop has done so far; only the loop writes it."""

    leader_id: UUID | None = None
    """The id of the term while this instance owns the shard."""
    terms: int = 0

    @property
    def is_owner(self) -> bool:
        return self.leader_id is not None


class Leadership:
    """Whether this instance leads its shard, from the lease; reports when that changes.

    The lease is checked once in `pace.check` seconds. It is a hint: the fence of the log decides who publishes.
    """

    def __init__(self, lease: Lease, options: LoopOptions, progress: RelayProgress) -> None:
        self.progress = progress
        self._lease = lease
        self._options = options
        self._leads_until = self._confirm_at = float("-inf")
        self._known_leader: UUID | None = None
        self._meter = RateMeter(options.shard_index, options.pace.meter, options.clock())

    def leads(self) -> bool:
        """Whether this instance leads; acquires or extends the lease when a check is due."""
        options = self._options
        if options.clock() < self._leads_until:
            return True
        if not self._lease.acquire():
            self._leads_until = float("-inf")
            return False
        if options.confirms_often and options.clock() >= self._confirm_at:
            # It reads the database, so less often than the lease is checked.
            options.confirm()
            self._confirm_at = options.clock() + options.pace.lease
        self._leads_until = options.clock() + options.pace.check
        return True

    def begin_term(self, leader_id: UUID) -> None:
        """Reports that this instance owns the shard."""
        kind = LeaderRefreshed if self._known_leader else LeaderAcquired
        self.progress.leader_id = self._known_leader = leader_id
        self.progress.terms += 1
        notify(self._options.on_event, kind(self._options.shard_index, leader_id))

    def revoke(self, kind: type[LeaderRevoked | LeaderFenced] = LeaderRevoked) -> None:
        """Reports the end of ownership, once."""
        leader_id, self._known_leader = self._known_leader, None
        if leader_id is not None:
            notify(self._options.on_event, kind(self._options.shard_index, leader_id))

    def accept_fence(self, error: FencedError) -> None:
        """Waits for the next chance to lead; raises the error where the lease does not arbitrate."""
        self.revoke(LeaderFenced)
        if not self._lease.arbitrates():
            raise FencedError(error.message, hint=NOT_ARBITRATED) from error
        log.warning("relay.fenced", extra={"error": str(error)})
        self._leads_until = float("-inf")
        self._options.stop.wait(self._options.pace.lease)

    def resign(self) -> None:
        """Reports the end of ownership and releases the lease, because the loop has ended."""
        self.revoke()
        self.release_lease()

    def release_lease(self) -> None:
        self._leads_until = float("-inf")
        try:
            self._lease.release()
        except TransientError as error:
            log.warning("relay.lease_not_released", extra={"error": str(error)})

    def read_meter(self) -> None:
        if reading := self._meter.due(self._options.clock(), self.progress.published):
            notify(self._options.on_event, reading)
