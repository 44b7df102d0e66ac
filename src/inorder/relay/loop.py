"""The relay loop: claim a batch, publish it in order, settle it, repeat while owner."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID, uuid4

from inorder.kafka.shard_log import Delivered, Incomplete, ShardLog
from inorder.model.errors import (
    FencedError,
    RejectedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
)
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import Batch, Pace
from inorder.relay.events import LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, Meter, RelayEvent
from inorder.relay.leadership.lease import Lease
from inorder.relay.parking import Policy, Refusals, Sender
from inorder.relay.stores.ports import ExceededStore
from inorder.relay.term import Strategy, Term

# Owning a shard: lead, begin a term, work while leading, give it back; what every strategy with one owner does.

log = logging.getLogger("inorder.relay")


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


def note_trouble(progress: Progress, error: TransientError) -> None:
    """Tells what a loop has to wait for."""
    progress.last_error = str(error)
    log.warning("relay.waiting: %s", error, extra={"code": error.code})


class OwnedTerm(Protocol):
    """One term of owning, from the fence to the first doubt."""

    @property
    def leader_id(self) -> UUID: ...

    def take_over(self) -> int:
        """Fences earlier owners and settles what they had published."""

    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows on their way to the broker at the moment; any thread may ask."""

    def close(self) -> None:
        """Ends the term; nothing more is sent."""


class Owning(TypedDict, total=False):
    """What a loop hands on to `OwnerLoop` as it is."""

    confirms_often: bool
    on_event: Callable[[RelayEvent], None]
    pace: Pace | None
    clock: Callable[[], float]


AnyTerm = TypeVar("AnyTerm", bound=OwnedTerm)


class OwnerLoop(ABC, Generic[AnyTerm]):
    """Runs one shard until it is told to stop. Every error of the environment is waited out, never counted."""

    def __init__(
        self,
        lease: Lease,
        *,
        stop: threading.Event,
        shard_index: int = 0,
        confirm: Callable[[], None] = lambda: None,
        confirms_often: bool = False,
        on_event: Callable[[RelayEvent], None] = lambda _event: None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`confirm` is called at the start of each term, behind the fence; it raises if this instance may not go on.

        Where no fence stops a past owner it must be asked with each extension of the lease too: `confirms_often`.
        """
        self._lease = lease
        self._stop = stop
        self._index = shard_index
        self._confirm = confirm
        self._confirms_often = confirms_often
        self._on_event = on_event
        self._pace = pace or Pace()
        self._clock = clock
        self._leads_until = self._confirm_at = float("-inf")
        self._known_leader: UUID | None = None
        self._term: AnyTerm | None = None
        self._meter = Meter(shard_index, self._pace.meter, clock())
        self.progress = Progress()

    @abstractmethod
    def _new_term(self) -> AnyTerm:
        """A term with a new leader id."""

    @abstractmethod
    def _step(self, term: AnyTerm) -> None:
        """A bit of work, or a rest; called again and again while leading."""

    def _before_end(self) -> None:
        """Whatever must be done before a term is closed."""

    def run(self) -> None:
        """Returns after `stop` is set and everything published is settled; raises what only a person can mend."""
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
            self._stop.wait(self._pace.check)
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
            self._before_end()
            term.close()

    def _leads(self) -> bool:
        if self._clock() < self._leads_until:
            return True
        if not self._lease.acquire():
            self._leads_until = float("-inf")
            return False
        if self._confirms_often:
            self._confirm_now_and_then()
        self._leads_until = self._clock() + self._pace.check
        return True

    def _confirm_now_and_then(self) -> None:
        """It asks the database, so not each time that the lease is looked at."""
        if self._clock() >= self._confirm_at:
            self._confirm()
            self._confirm_at = self._clock() + self._pace.lease

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
        note_trouble(self.progress, error)
        self._stop.wait(self._pace.back_off)

    def _release(self) -> None:
        try:
            self._lease.release()
        except TransientError as error:
            log.warning("relay.lease_not_released: %s", error)


LULL_ROWS = 1
"""A sleeping relay that finds no more rows than this at once stays asleep while it publishes them: rows come one by
one, and it would fall asleep again behind each. Publishers go on notifying, which costs only many of them."""


class RelayLoop(OwnerLoop[Term]):
    """Runs one shard by a strategy that claims rows: `drain` or `mark-purge`."""

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
        **owning: Unpack[Owning],
    ) -> None:
        super().__init__(lease, stop=stop, shard_index=shard_index, confirm=confirm, **owning)
        self._strategy = strategy
        self._exceeded = exceeded
        self._shard = shard
        self._rests = 0
        self._is_asleep = False
        refusals = Refusals(self.progress, max_attempts, policy, self._pace, self._clock, stop)
        self._sending = Sending(self.progress, refusals, self._pace, leads=self._leads, stop=stop, clock=self._clock)

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
            self._sending.send(term, waiting)
            if self._stop.is_set():
                return
        batch = term.claim()
        if batch.rows:
            if len(batch.rows) > LULL_ROWS:
                self._wake_up()
            self._sending.send(term, batch)
            self._rests = 0
        else:
            self._rest(term, batch)
        self._read_meter()

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
        while self._clock() < until and not self._strategy.sleeper.wait(term.rest_seconds(self._pace.poll)):
            self._read_meter()
            if self._stop.is_set() or not self._leads() or term.something_waits():
                return

    def _before_end(self) -> None:
        self._wake_up()

    def _wake_up(self) -> None:
        """Publishers need not notify any more; with a broken connection they do not."""
        if self._is_asleep:
            self._is_asleep = False
            try:
                self._strategy.sleeper.end_sleep()
            except TransientError as error:
                log.info("relay.sleep_ended: %s", error)


# The way of one batch to the broker: in parts where a record is refused, again and again where the broker fails.


ENDLESS = 2**31


class Sending:
    """Sends the batches of one loop."""

    def __init__(
        self,
        progress: Progress,
        refusals: Refusals,
        pace: Pace,
        *,
        leads: Callable[[], bool],
        stop: threading.Event,
        clock: Callable[[], float],
        most_tries: int = ENDLESS,
    ) -> None:
        """A batch is given up after `pace.queue` seconds of trouble with the broker, or so many tries."""
        self._progress = progress
        self._refusals = refusals
        self._pace = pace
        self._leads = leads
        self._stop = stop
        self._clock = clock
        self._most_tries = most_tries

    def send(self, term: Sender, batch: Batch) -> bool:
        """Publishes all of the batch that may go, in parts if a record in it is refused and nobody knows which.

        False where it was told to stop before the end.
        """
        parts: list[Sequence[OutboxRow]] = [batch.rows]
        give_up_at, tries = self._clock() + self._pace.queue, 0
        while parts and not self._stop.is_set():
            rows = term.sift(parts.pop())
            if not rows:
                continue
            if flawed := next((row for row in rows if row.flaw), None):
                parts += self._refusals.flawed(term, rows, flawed)
                continue
            match term.publish(replace(batch, rows=rows)):
                case Delivered():
                    self._progress.published += len(rows)
                    self._progress.last_error = ""
                case Incomplete(RejectedError() as error, delivered):
                    parts += self._refusals.refused(term, self._undelivered(term, rows, delivered), error)
                case Incomplete(TopicUnavailableError() as error, delivered):
                    parts.append(self._undelivered(term, rows, delivered))
                    self._let_topic_wait(term, error)
                case Incomplete(TransientError() as error, delivered):
                    parts.append(self._undelivered(term, rows, delivered))
                    tries += 1
                    self._wait_out(error)
                    if tries > self._most_tries or not self._leads() or self._clock() > give_up_at:
                        raise error  # another may own the shard by now, and not every log would stop us
        return not parts

    def _undelivered(self, term: Sender, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of a batch arrived; that part is settled."""
        if not delivered:
            return rows
        term.settle_delivered([row.id for row in rows if row.id in delivered])
        self._progress.published += len(delivered)
        return [row for row in rows if row.id not in delivered]

    def _let_topic_wait(self, term: Sender, error: TopicUnavailableError) -> None:
        self._progress.last_error = str(error)
        log.warning("relay.topic_waits: %s", error, extra={"topic": error.topic})
        wait = self._pace.switch if isinstance(error, TopicSwitchingError) else self._pace.topic
        term.hold_topic(error.topic, self._clock() + wait)

    def _wait_out(self, error: TransientError) -> None:
        note_trouble(self._progress, error)
        self._stop.wait(self._pace.back_off)
