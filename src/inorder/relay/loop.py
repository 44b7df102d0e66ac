"""The relay loop: claim a batch, publish it in order, settle it, repeat while owner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Unpack
from uuid import uuid4

from inorder.model.errors import (
    TransientError,
)
from inorder.ports.exceeded_store import ExceededStore
from inorder.ports.lease import Lease
from inorder.ports.shard_log import ShardLog
from inorder.relay.batch import Batch
from inorder.relay.owning import OwnerLoop, Owning
from inorder.relay.parking import Policy
from inorder.relay.refusal import Refusals
from inorder.relay.sending import Sending
from inorder.relay.term import Strategy, Term

log = logging.getLogger("inorder.relay")

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
