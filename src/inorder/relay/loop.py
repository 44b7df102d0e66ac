"""The relay loop: claim a batch, publish it in order, settle it, repeat while owner."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from inorder.model.errors import (
    FencedError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
)
from inorder.ports.exceeded_store import ExceededStore
from inorder.ports.lease import Lease
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.shard_log import ShardLog
from inorder.relay.batch import Batch
from inorder.relay.events import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    Meter,
    RelayEvent,
)
from inorder.relay.pace import Pace
from inorder.relay.parking import Policy
from inorder.relay.refusal import Refusals
from inorder.relay.term import Strategy, Term

log = logging.getLogger("inorder.relay")

LULL_ROWS = 1
"""A sleeping relay that finds no more rows than this at once stays asleep while it publishes them: rows come one by
one, and it would fall asleep again behind each. Publishers go on notifying, which costs only many of them."""


@dataclass(slots=True)
class Progress:
    """What the loop has done so far; written by the loop only."""

    leader_id: UUID | None = None
    """The id of the term while this instance owns the shard."""
    terms: int = 0
    published: int = 0
    exceeded: int = 0
    last_error: str = ""

    @property
    def is_owner(self) -> bool:
        return self.leader_id is not None


class RelayLoop:
    """Runs one shard until it is told to stop. Every error of the environment is waited out, never counted."""

    def __init__(
        self,
        strategy: Strategy,
        exceeded: ExceededStore,
        shard: ShardLog,
        lease: Lease,
        *,
        stop: threading.Event,
        shard_index: int = 0,
        max_attempts: int = 5,
        policy: Callable[[str], Policy] = lambda _topic: "park",
        confirm: Callable[[], None] = lambda: None,
        confirms_often: bool = False,
        on_event: Callable[[RelayEvent], None] = lambda _event: None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`confirm` is called at the start of each term, behind the fence; it raises if this instance may not go on.

        Where no fence stops a past owner it must be asked with each extension of the lease too: `confirms_often`.
        """
        self._strategy = strategy
        self._exceeded = exceeded
        self._shard = shard
        self._lease = lease
        self._stop = stop
        self._index = shard_index
        self._confirm = confirm
        self._confirms_often = confirms_often
        self._on_event = on_event
        self._pace = pace or Pace()
        self._clock = clock
        self._leads_until = float("-inf")
        self._known_leader: UUID | None = None
        self._rests = 0
        self._is_asleep = False
        self._term: Term | None = None
        self._meter = Meter(shard_index, self._pace.meter, clock())
        self.progress = Progress()
        self._refusals = Refusals(self.progress, max_attempts, policy, self._pace, clock, stop)

    def run(self) -> None:
        """Returns after `stop` is set and everything published is purged; raises what only a person can mend."""
        try:
            while not self._stop.is_set():
                try:
                    self._own_while_leading()
                except FencedError as error:
                    self._after_fence(error)
                except TransientError as error:
                    self._wait_out(error)
        finally:
            self._tell_revoked()
            self._release()

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; any thread may ask."""
        term = self._term
        return term.in_flight() if term else ()

    def _own_while_leading(self) -> None:
        if not self._leads():
            self._tell_revoked()
            self._stop.wait(self._pace.lease)
            return
        term = self._term = self._new_term()
        try:
            term.take_over()
            self._confirm()
            self._tell_acquired(term.leader_id)
            while self._leads() and not self._stop.is_set():
                self._step(term)
        finally:
            self.progress.leader_id = self._term = None
            self._wake_up()
            term.close()

    def _new_term(self) -> Term:
        leader_id = uuid4()
        return Term(
            leader_id,
            self._strategy.claims(leader_id),
            self._exceeded,
            self._shard,
            batch_size=self._strategy.batch_size,
            clock=self._clock,
            look_seconds=self._pace.parked,
            retry_seconds=self._pace.back_off,
        )

    def _step(self, term: Term) -> None:
        for waiting in term.due():
            self._publish(term, waiting)
            if self._stop.is_set():
                return
        batch = term.claim()
        if batch.rows:
            if len(batch.rows) > LULL_ROWS:
                self._wake_up()
            self._publish(term, batch)
        else:
            self._rest(term, batch)
        self._read_meter()

    def _publish(self, term: Term, batch: Batch) -> None:
        """Publishes all of the batch that may go, in parts if a record in it is refused and nobody knows which."""
        parts: list[Sequence[OutboxRow]] = [batch.rows]
        give_up_at = self._clock() + self._pace.queue
        while parts and not self._stop.is_set():
            rows = term.sift(parts.pop())
            if not rows:
                continue
            if flawed := next((row for row in rows if row.flaw), None):
                parts += self._refusals.flawed(term, rows, flawed)
                continue
            try:
                term.publish(replace(batch, rows=rows))
            except (FencedError, UnknownOutcomeError):
                raise
            except RejectedError as error:
                parts += self._refusals.refused(term, self._undelivered(term, rows, error.delivered_ids), error)
            except TopicUnavailableError as error:
                parts.append(self._undelivered(term, rows, error.delivered_ids))
                self._let_topic_wait(term, error)
            except TransientError as error:
                parts.append(self._undelivered(term, rows, error.delivered_ids))
                self._wait_out(error)
                if not self._leads() or self._clock() > give_up_at:
                    raise  # another may own the shard by now, and not every log would stop us
            else:
                self._rests = 0
                self.progress.published += len(rows)
                self.progress.last_error = ""

    def _undelivered(self, term: Term, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of a batch arrived; that part is settled."""
        if not delivered:
            return rows
        term.settle_delivered([row.id for row in rows if row.id in delivered])
        self.progress.published += len(delivered)
        return [row for row in rows if row.id not in delivered]

    def _let_topic_wait(self, term: Term, error: TopicUnavailableError) -> None:
        self.progress.last_error = str(error)
        log.warning("relay.topic_waits: %s", error, extra={"topic": error.topic})
        term.hold_topic(error.topic, self._clock() + self._pace.topic)

    def _rest(self, term: Term, empty: Batch) -> None:
        """Waits for rows: asleep, if publishers can be asked to wake us, else by looking again soon.

        Whoever falls asleep looks once more, since what was committed just before woke nobody.
        """
        if empty.others_move:  # writers to other shards would wake us for nothing
            self._wake_up()
        elif self._is_asleep:
            self._doze(term)
            return
        elif self._strategy.sleeper.begin_sleep():
            self._is_asleep = True
            return
        self._stop.wait(self._pace.brief(self._rests))
        self._rests += 1

    def _doze(self, term: Term) -> None:
        """Waits for a publisher; looks up now and then for what only the clock brings."""
        until = self._clock() + self._pace.asleep
        while self._clock() < until and not self._strategy.sleeper.wait(self._pace.poll):
            self._read_meter()
            if self._stop.is_set() or not self._leads() or term.something_waits():
                return

    def _wake_up(self) -> None:
        """Publishers need not notify any more; with a broken connection they do not."""
        if self._is_asleep:
            self._is_asleep = False
            try:
                self._strategy.sleeper.end_sleep()
            except TransientError as error:
                log.info("relay.sleep_ended: %s", error)

    def _leads(self) -> bool:
        if self._clock() < self._leads_until:
            return True
        if not self._lease.acquire():
            self._leads_until = float("-inf")
            return False
        if self._confirms_often:
            self._confirm()
        self._leads_until = self._clock() + self._pace.lease
        return True

    def _tell_acquired(self, leader_id: UUID) -> None:
        kind = LeaderRefreshed if self._known_leader else LeaderAcquired
        self.progress.leader_id = self._known_leader = leader_id
        self.progress.terms += 1
        self._tell(kind(self._index, leader_id))

    def _tell_revoked(self, kind: type[LeaderRevoked | LeaderFenced] = LeaderRevoked) -> None:
        leader_id, self._known_leader = self._known_leader, None
        if leader_id is not None:
            self._tell(kind(self._index, leader_id))

    def _read_meter(self) -> None:
        if reading := self._meter.due(self._clock(), self.progress.published):
            self._tell(reading)

    def _tell(self, event: RelayEvent) -> None:
        try:
            self._on_event(event)
        except Exception:
            log.exception("relay.handler_failed", extra={"event_kind": type(event).__name__})

    def _after_fence(self, error: FencedError) -> None:
        self._tell_revoked(LeaderFenced)
        if not self._lease.arbitrates():
            raise error
        log.warning("relay.fenced: %s", error)
        self._leads_until = float("-inf")
        self._stop.wait(self._pace.lease)

    def _wait_out(self, error: TransientError) -> None:
        self.progress.last_error = str(error)
        log.warning("relay.waiting: %s", error, extra={"code": error.code})
        self._stop.wait(self._pace.back_off)

    def _release(self) -> None:
        try:
            self._lease.release()
        except TransientError as error:
            log.warning("relay.lease_not_released: %s", error)
