"""The relay loop: claim a batch, publish it in order, settle it, repeat while owner."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError
from inorder.ports.exceeded_store import ExceededStore, Exceeding
from inorder.ports.lease import Lease
from inorder.ports.outbox_store import OutboxRow, OutboxStore
from inorder.ports.shard_log import ShardLog
from inorder.relay.drain import Batch, Owner
from inorder.relay.parking import Policy, halves

log = logging.getLogger("inorder.relay")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the relay waits, in seconds, and for what."""

    poll: float = 0.5
    """Between looks at the table while publishers are asked to wake us."""
    brief_poll: float = 0.002
    """Before the next look while they cannot be asked, because one of them is about to commit. Doubles each time."""
    longest_brief_poll: float = 0.05
    """Where that doubling ends: a transaction that stays open is looked for so often."""
    lease: float = 1.0
    """Between extensions of the lease, and between tries to win it."""
    parked: float = 1.0
    """Between looks whether somebody released a parked key, while there is one."""
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
    exceeded: int = 0
    last_error: str = ""


class RelayLoop:
    """Runs one shard until it is told to stop. Every error of the environment is waited out, never counted."""

    def __init__(
        self,
        store: OutboxStore,
        exceeded: ExceededStore,
        shard: ShardLog,
        lease: Lease,
        *,
        batch_size: int,
        stop: threading.Event,
        max_attempts: int = 5,
        policy: Callable[[str], Policy] = lambda _topic: "park",
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._exceeded = exceeded
        self._policy = policy
        self._shard = shard
        self._lease = lease
        self._batch_size = batch_size
        self._stop = stop
        self._max_attempts = max_attempts
        self._pace = pace or Pace()
        self._clock = clock
        self._leads_until = float("-inf")
        self._rests = 0
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
        owner = self._new_owner()
        try:
            owner.take_over()
            self.progress.is_owner = True
            self.progress.terms += 1
            while self._leads() and not self._stop.is_set():
                self._step(owner)
        finally:
            self.progress.is_owner = False
            owner.close()

    def _new_owner(self) -> Owner:
        return Owner(
            self._store,
            self._exceeded,
            self._shard,
            batch_size=self._batch_size,
            clock=self._clock,
            look_seconds=self._pace.parked,
            retry_seconds=self._pace.back_off,
        )

    def _step(self, owner: Owner) -> None:
        for waiting in owner.due():
            self._publish(owner, waiting)
        batch = owner.claim()
        if batch.rows:
            self._publish(owner, batch)
        else:
            self._rest(owner)

    def _publish(self, owner: Owner, batch: Batch) -> None:
        """Publishes all of the batch that may go, in parts if a record in it is refused and nobody knows which."""
        parts: list[Sequence[OutboxRow]] = [batch.rows]
        while parts and not self._stop.is_set():
            rows = owner.sift(parts.pop())
            if not rows:
                continue
            try:
                owner.publish(replace(batch, rows=rows))
            except (FencedError, UnknownOutcomeError):
                raise
            except RejectedError as error:
                parts += self._after_refusal(owner, self._undelivered(owner, rows, error.delivered_ids), error)
            except TransientError as error:
                parts.append(self._undelivered(owner, rows, error.delivered_ids))
                self._wait_out(error)
                if not self._leads():
                    raise  # another may own the shard by now, and not every log would stop us
            else:
                self._rests = 0
                self.progress.published += len(rows)
                self.progress.last_error = ""

    def _undelivered(self, owner: Owner, rows: list[OutboxRow], delivered: frozenset[int]) -> list[OutboxRow]:
        """The rows that are left when part of a batch arrived; that part is settled."""
        if not delivered:
            return rows
        owner.settle_delivered([row.id for row in rows if row.id in delivered])
        self.progress.published += len(delivered)
        return [row for row in rows if row.id not in delivered]

    def _after_refusal(
        self, owner: Owner, rows: list[OutboxRow], error: RejectedError
    ) -> Sequence[Sequence[OutboxRow]]:
        """What is left to do, last part first: the rows without the guilty one's key, or both halves to search."""
        self.progress.last_error = str(error)
        guilty = rows[0] if len(rows) == 1 else next((row for row in rows if row.id == error.row_id), None)
        if guilty is None:
            return halves(rows)[::-1]
        attempts, policy = owner.refuse(guilty), self._policy(guilty.topic)
        log.warning("relay.refused: %s", error, extra={"row": guilty.id, "attempts": attempts, "policy": policy})
        if policy == "block":
            return [self._stand_still(owner, rows, error, attempts)]
        owner.hold(guilty, self._clock() + self._pace.back_off)
        if attempts >= self._max_attempts:
            parks = policy == "park" and guilty.key is not None
            self._exceed(owner, guilty, Exceeding(guilty.id, attempts, error.code, error.message, parks))
        return [rows]

    def _exceed(self, owner: Owner, row: OutboxRow, exceeding: Exceeding) -> None:
        owner.exceed(row, exceeding)
        self.progress.exceeded += 1
        log.error("relay.exceeded: %s", exceeding.reason, extra={"row": row.id, "parks": exceeding.parks})

    def _stand_still(self, owner: Owner, rows: list[OutboxRow], error: RejectedError, attempts: int) -> list[OutboxRow]:
        """The policy `block`: everything waits, and the rows are read again in case somebody repaired them."""
        exceeded = attempts >= self._max_attempts
        if exceeded:
            log.error("relay.blocked: %s", error)
        self._stop.wait(self._pace.blocked if exceeded else self._pace.back_off)
        return owner.read_again([row.id for row in rows])

    def _rest(self, owner: Owner) -> None:
        """Sleeps until woken. The look after falling asleep finds what was committed just before."""
        asleep = self._store.begin_sleep()
        try:
            batch = owner.claim()
            if not batch.rows:
                self._store.wait(self._pace.poll if asleep else self._brief_poll())
        finally:
            self._store.end_sleep()
        if batch.rows:
            self._publish(owner, batch)

    def _brief_poll(self) -> float:
        self._rests = min(self._rests + 1, 10)
        return min(self._pace.brief_poll * float(2**self._rests), self._pace.longest_brief_poll)

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
