"""The relay loop: claim a batch, publish it in order, settle it, repeat while owner."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError
from inorder.ports.lease import Lease
from inorder.ports.outbox_store import OutboxStore
from inorder.ports.shard_log import ShardLog
from inorder.relay.drain import Batch, Owner

log = logging.getLogger("inorder.relay")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the relay waits, in seconds, and for what."""

    poll: float = 0.5
    """Between looks at the table while publishers are asked to wake us."""
    brief_poll: float = 0.02
    """Between looks while they cannot be asked, because one of them is about to commit."""
    lease: float = 1.0
    """Between extensions of the lease, and between tries to win it."""
    back_off: float = 0.5
    """After a failure of the environment, or a record that was refused."""
    blocked: float = 10.0
    """After a record has used up its attempts: somebody has to act, so trying more often helps nobody."""


@dataclass(slots=True)
class Progress:
    """What the loop has done so far; written by the loop only."""

    is_owner: bool = False
    terms: int = 0
    published: int = 0
    last_error: str = ""


class RelayLoop:
    """Runs one shard until it is told to stop. Every error of the environment is waited out, never counted."""

    def __init__(
        self,
        store: OutboxStore,
        shard: ShardLog,
        lease: Lease,
        *,
        batch_size: int,
        stop: threading.Event,
        max_attempts: int = 5,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._shard = shard
        self._lease = lease
        self._batch_size = batch_size
        self._stop = stop
        self._max_attempts = max_attempts
        self._pace = pace or Pace()
        self._clock = clock
        self._leads_until = float("-inf")
        self.progress = Progress()

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
            self._release()

    def _own_while_leading(self) -> None:
        if not self._leads():
            self._stop.wait(self._pace.lease)
            return
        owner = Owner(self._store, self._shard, batch_size=self._batch_size, clock=self._clock)
        try:
            owner.take_over()
            self.progress.is_owner = True
            self.progress.terms += 1
            while self._leads() and not self._stop.is_set():
                self._step(owner)
        finally:
            self.progress.is_owner = False
            owner.close()

    def _step(self, owner: Owner) -> None:
        batch = owner.claim()
        if batch.rows:
            self._publish(owner, batch)
        else:
            self._rest(owner)

    def _publish(self, owner: Owner, batch: Batch) -> None:
        refusals = 0
        while not self._stop.is_set():
            try:
                owner.publish(batch)
            except (FencedError, UnknownOutcomeError):
                raise
            except RejectedError as error:
                refusals += 1
                self._after_refusal(error, refusals)
            except TransientError as error:
                self._wait_out(error)
            else:
                self.progress.published += len(batch.rows)
                self.progress.last_error = ""
                return

    def _after_refusal(self, error: RejectedError, refusals: int) -> None:
        """The policy `block`: the record keeps its place and everything behind it waits, loudly."""
        self.progress.last_error = str(error)
        exceeded = refusals >= self._max_attempts
        event = "relay.blocked" if exceeded else "relay.refused"
        log.log(logging.ERROR if exceeded else logging.WARNING, "%s: %s", event, error, extra={"refusals": refusals})
        self._stop.wait(self._pace.blocked if exceeded else self._pace.back_off)

    def _rest(self, owner: Owner) -> None:
        """Sleeps until woken. The look after falling asleep finds what was committed just before."""
        asleep = self._store.begin_sleep()
        try:
            batch = owner.claim()
            if not batch.rows:
                self._store.wait(self._pace.poll if asleep else self._pace.brief_poll)
        finally:
            self._store.end_sleep()
        if batch.rows:
            self._publish(owner, batch)

    def _leads(self) -> bool:
        if self._clock() < self._leads_until:
            return True
        if not self._lease.acquire():
            self._leads_until = float("-inf")
            return False
        self._leads_until = self._clock() + self._pace.lease
        return True

    def _after_fence(self, error: FencedError) -> None:
        if not self._lease.arbitrates():
            raise error
        log.warning("relay.fenced", extra={"error": str(error)})
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
            log.warning("relay.lease_not_released", extra={"error": str(error)})
