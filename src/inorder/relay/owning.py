"""Owning a shard: lead, begin a term, work while leading, give it back; what every strategy with one owner does."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypedDict, TypeVar
from uuid import UUID

from inorder.model.errors import FencedError, TransientError
from inorder.ports.lease import Lease
from inorder.ports.outbox_store import OutboxRow
from inorder.relay.events import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    Meter,
    RelayEvent,
)
from inorder.relay.pace import Pace

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
