"""What every strategy runs with: how long it waits and for what, and the policy for refused records."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from inorder.model.errors import TransientError, is_same_failure, is_worth_logging
from inorder.relay.events import RelayEvent, SendCounts
from inorder.relay.marker import MarkerCodec

log = logging.getLogger("inorder.relay")

Policy = Literal["park", "skip", "block"]
"""What happens to a record that used up its attempts; `parking.py` explains the three."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a relay waits, in seconds, and for what."""

    poll: float = 0.5
    """Between checks of timers while the relay sleeps and publishers wake it."""
    asleep: float = 10.0
    """Between reads of the table while the relay sleeps, in case a notification was lost."""
    brief_poll: float = 0.004
    """Before the next read while the relay cannot sleep because a publisher is about to commit. Doubles each time."""
    longest_brief_poll: float = 0.05
    """The upper bound of that doubling, so the interval of reads while a transaction stays open."""
    lease: float = 1.0
    """Between attempts to win the lease, and before the next one after being fenced."""
    check: float = 1.0
    """Between checks whether this instance leads."""
    parked: float = 1.0
    """Between checks whether an operator released a parked key, while there is one."""
    topic: float = 2.0
    """Before the next attempt at a topic that is deleted or refuses our writes."""
    switch: float = 0.25
    """Before the next attempt at a topic that is being switched: it opens again within moments."""
    back_off: float = 0.5
    """After a failure of the environment, or a refused record."""
    blocked: float = 10.0
    """Between attempts at a record that used up its attempts under the policy `block`: an operator has to act."""
    queue: float = 30.0
    """For a batch in hand to be accepted; after that the term ends and the rows are claimed again."""
    meter: float = 5.0
    """Between readings of the meter."""

    def brief(self, empty_reads: int) -> float:
        """The wait before the next read after this many empty ones."""
        return min(self.brief_poll * float(2 ** min(empty_reads, 20)), self.longest_brief_poll)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """What all strategies share."""

    stop: threading.Event = field(default_factory=threading.Event)
    """Ends the relay once it is set; every wait watches it."""
    max_attempts: int = 5
    policy: Callable[[str], Policy] = lambda _topic: "park"
    """The policy of each topic."""
    pace: Pace = Pace()
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions(StrategyOptions):
    """What the loop of one shard runs with."""

    shard_index: int = 0
    require_server: Callable[[], None] = lambda: None
    """Called before the lease is won; raises if the database is one on which order does not hold."""
    confirm: Callable[[], None] = lambda: None
    """Called at the start of each term, behind the fence; raises if this instance must not publish."""
    confirms_often: bool = False
    """Calls `confirm` with each extension of the lease too: needed where no fence stops a past owner."""
    pause: Callable[[], str] = lambda: ""
    """Why an operator has paused the shard; empty while it is not."""
    on_event: Callable[[RelayEvent], None] = lambda _event: None
    markers: MarkerCodec = field(default_factory=MarkerCodec)


def wait_out(error: TransientError, counts: SendCounts, options: StrategyOptions, **fields: object) -> None:
    """Reports a failure of the environment and waits before the next attempt. It never counts against a record.

    The same failure is logged ever less often: the first time, then after 1, 2, 4, 8, … more attempts.
    """
    counts.repeated = counts.repeated + 1 if is_same_failure(counts.last_error, str(error)) else 0
    counts.last_error = str(error)
    if is_worth_logging(counts.repeated):
        fields["repeated"] = counts.repeated
        log.warning("relay.waiting", extra={"error": str(error), "code": error.code, **fields})
    options.stop.wait(options.pace.back_off)
