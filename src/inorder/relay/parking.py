"""What happens to a refused record, and what waits for it: one bad record holds its key and nothing else.

A record that the broker refuses for its content is *held*, and with it every later record of its key, so that none
overtakes it. It is tried again after a pause. When its attempts are used up, the policy of its topic decides:

    refused ──▶ held ──(attempts left)──▶ tried again ──▶ published: the key continues
                 │
                 └──(used up)──▶ exceeded ──▶ park: the key waits for an operator    (keeps the order, the default)
                                          ──▶ skip: the key continues without it
                                 block: everything waits, the record keeps its place

`judge` makes that decision, `Refusals` carries it out, for all strategies. They differ in the effects only
(`RefusalEffects`): where attempts are counted, how a row leaves the outbox, what `block` stops. Only errors of the
record count. A row that was written incorrectly (`OutboxRow.flaw`) gets no second attempt, because nothing would
change. Where the broker does not say which record of a batch it refused, halving the batch finds it.

The direct publisher (`outbox/send_queue.py`) shares none of this. It publishes the same batch again until its log,
which then sends suspects alone (`kafka/idempotent_producer.py`), names the refused record; and a refusal ends the
caller's request, so there are no attempts, no policy and nothing to hold.

`Parking` is the memory of what waits. It keeps only ids: the rows stay in the table and are read again when their
turn comes, so that a parked key with a million rows costs a million numbers and not their values. A record without a
key has no order to keep and is held alone.

A topic that is deleted or refuses our writes waits as a whole and uses up no attempts. It is tried with its first row;
the rest follows once that succeeds. While a topic waits, later rows of a key that is held wait with the topic. So a key
whose own wait ends before that of its topic joins it, and both continue as one, in id order.

Nothing here is authoritative. A new owner reads from the store which keys are parked, finds the waiting rows by its
first sweep, and counts attempts from zero.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from inorder.model.errors import RejectedError
from inorder.model.message import OutboxRow
from inorder.relay.events import SendCounts
from inorder.relay.options import Policy, StrategyOptions
from inorder.relay.stores.ports import Exceeding, Key

log = logging.getLogger("inorder.relay")

MOST_REASON = 2000
"""Characters of a reason: the marker carries it, whose size has a bound."""

Parts = Sequence[Sequence[OutboxRow]]
"""What remains of a batch, last part first."""


class Refusals:
    """Handles the refused records of one loop or worker."""

    def __init__(self, options: StrategyOptions, counts: SendCounts) -> None:
        """A refused row is tried again after `pace.back_off`."""
        self._options = options
        self._counts = counts

    def refused(self, term: RefusalEffects, rows: list[OutboxRow], error: RejectedError) -> Parts:
        """Handles a refusal among `rows`; returns what to publish next: the other rows, or both halves to search."""
        guilty = rows[0] if len(rows) == 1 else next((row for row in rows if row.id == error.row_id), None)
        if guilty is None:
            self._counts.last_error = str(error)
            return halve(rows)[::-1]
        return [self._settle(term, rows, guilty, error, term.refuse(guilty))]

    def flawed(self, term: RefusalEffects, rows: list[OutboxRow], row: OutboxRow) -> Parts:
        """Handles a row that was written incorrectly, without further attempts."""
        error = RejectedError(f"Outbox row {row.id} is malformed: {row.flaw}", row_id=row.id)
        return [self._settle(term, rows, row, error, max(term.refuse(row), self._options.max_attempts))]

    def _settle(
        self, term: RefusalEffects, rows: list[OutboxRow], guilty: OutboxRow, error: RejectedError, attempts: int
    ) -> list[OutboxRow]:
        self._counts.last_error = str(error)
        pace, policy = self._options.pace, self._options.policy(guilty.topic)
        fields = {"row": guilty.id, "attempts": attempts, "policy": policy, "error": str(error)}
        log.warning("relay.refused", extra=fields)
        verdict = judge(guilty, attempts, self._options.max_attempts, policy)
        if verdict is RefusalVerdict.PAUSE:
            return term.block(rows, error, pace.back_off)
        if verdict is RefusalVerdict.BLOCK:
            log.error("relay.blocked", extra=fields)
            return term.block(rows, error, pace.blocked)
        term.hold(guilty, self._options.clock() + pace.back_off)
        if verdict is not RefusalVerdict.RETRY:
            reason, parks = error.message[:MOST_REASON], verdict is RefusalVerdict.PARK
            exceeding = Exceeding(guilty.id, attempts, error.code, reason, parks)
            term.exceed(guilty, exceeding)
            self._counts.exceeded += 1
            log.error("relay.exceeded", extra={"row": guilty.id, "parks": exceeding.parks, "reason": exceeding.reason})
        return [row for row in rows if row is not guilty]


class RefusalVerdict(Enum):
    """What to do with a refused record."""

    RETRY = "hold its key and try it again"
    PARK = "move it out of the outbox and park its key"
    SKIP = "move it out of the outbox and continue with its key"
    PAUSE = "try it again before anything else"
    BLOCK = "the same, and an operator has to act"


def judge(row: OutboxRow, attempts: int, max_attempts: int, policy: Policy) -> RefusalVerdict:
    """Decides by the attempts that a row has used up and the policy of its topic."""
    is_exceeded = attempts >= max_attempts
    if policy == "block":
        return RefusalVerdict.BLOCK if is_exceeded else RefusalVerdict.PAUSE
    if not is_exceeded:
        return RefusalVerdict.RETRY
    has_order = row.key is not None and row.topic != ""
    return RefusalVerdict.PARK if policy == "park" and has_order else RefusalVerdict.SKIP


def halve(rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    """Both halves of a batch in which an unknown record was refused."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


class RefusalEffects(Protocol):
    """What a term or batch does about a refused record."""

    def refuse(self, row: OutboxRow, /) -> int:
        """Counts a refusal; returns how many attempts the row has used up."""

    def hold(self, row: OutboxRow, retry_at: float, /) -> None:
        """Holds a refused row and its key until `retry_at`."""

    def exceed(self, row: OutboxRow, exceeding: Exceeding, /) -> None:
        """Moves a held row out of the outbox, because its attempts are used up."""

    def block(self, rows: Sequence[OutboxRow], error: RejectedError, seconds: float, /) -> list[OutboxRow]:
        """Keeps everything waiting for the first refused row; returns the rows as they are after the pause."""


Order = tuple[str, bytes] | tuple[str, int] | tuple[str]
"""What must stay in order: a topic and key, or one record without a key by its id; or a topic that waits as a whole."""


def order_of(row: OutboxRow) -> Order:
    """What this row must stay in order with."""
    return (row.topic, row.key) if row.key is not None else (row.topic, row.id)


@dataclass(slots=True)
class Held:
    """Rows that wait, by id, the bad one first; `retry_at` is None while only an operator can release them."""

    bad: int
    ids: set[int] = field(default_factory=set)
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of one key or topic that waited and may be tried now, by id, in order."""

    order: Order
    ids: list[int]

    @property
    def first_size(self) -> int | None:
        """How many to try first: one, where all of them probably succeed or fail together."""
        return 1 if len(self.order) == 1 else None


class Parking:
    """What waits at the moment, for one owner."""

    def __init__(
        self,
        parked: Mapping[Key, Sequence[int]] | None = None,
        order: Callable[[OutboxRow], Order] = order_of,
    ) -> None:
        self._order = order
        self._held: dict[Order, Held] = {key: Held(min(ids), set(ids)) for key, ids in (parked or {}).items()}
        self._attempts: dict[int, int] = {}

    def sift(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that may be published now; those behind a held one of their key are recorded as waiting."""
        if not self._held:
            return list(rows)
        return [row for row in rows if not self._waits(row)]

    def refuse(self, row: OutboxRow) -> int:
        """Counts one more refusal of the row; returns how many attempts it has used up."""
        self._attempts[row.id] = self._attempts.get(row.id, 0) + 1
        return self._attempts[row.id]

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds the row and its key until `retry_at`; a parked key stays parked, and the row waits with it."""
        held = self._held.setdefault(self._order(row), Held(row.id, retry_at=retry_at))
        held.bad = min(held.bad, row.id)
        held.ids.add(row.id)
        if held.retry_at is not None:
            held.retry_at = retry_at

    def hold_topic(self, topic: str, retry_at: float) -> None:
        """Holds everything of the topic until `retry_at`."""
        self._held.setdefault((topic,), Held(bad=0)).retry_at = retry_at

    def exceed(self, row: OutboxRow, *, parks: bool, now: float) -> None:
        """The row has left the outbox: its key waits for an operator, or continues without it at once."""
        held = self._held[self._order(row)]
        self._attempts.pop(row.id, None)
        if parks:
            held.retry_at = None
        else:
            held.ids.discard(row.id)
            held.retry_at = now

    def due(self, now: float) -> list[Waiting]:
        """Takes what is to be tried now out of hold."""
        return self._take(
            order for order, held in self._held.items() if held.retry_at is not None and held.retry_at <= now
        )

    def release(self, parked: Mapping[Key, Sequence[int]]) -> list[Waiting]:
        """Takes keys out of hold that the store no longer lists as parked, with the ids that waited.

        Call it before `due`, so that a key which joins its topic is still in time for it.
        """
        return self._take(order for order in self.parked() if order not in parked)

    def parked(self) -> list[Order]:
        return [order for order, held in self._held.items() if held.retry_at is None]

    def due_at(self) -> float | None:
        """When the next hold ends by time alone; None if there is none."""
        return min((held.retry_at for held in self._held.values() if held.retry_at is not None), default=None)

    def holds(self) -> bool:
        """Whether anything waits at all."""
        return bool(self._held)

    def forget_attempts(self, ids: Iterable[int]) -> None:
        """Rows were published after all."""
        if self._attempts:
            for id in ids:
                self._attempts.pop(id, None)

    def waits_again(self, waiting: Waiting, place: int) -> bool:
        """Whether what was taken out is held again; if so, its rows from `place` on are put back to wait."""
        held = self._held.get(waiting.order)
        if held is not None:
            held.ids.update(waiting.ids[place:])
        return held is not None

    def _waits(self, row: OutboxRow) -> bool:
        held = self._held.get((row.topic,)) or self._held.get(self._order(row))
        if held is None or row.id < held.bad:
            return False
        held.ids.add(row.id)
        return True

    def _take(self, orders: Iterable[Order]) -> list[Waiting]:
        """Takes these out of hold, except keys whose topic waits: those join it first, and go when it goes."""
        taken = list(orders)
        for order in taken:
            topic = self._held.get((order[0],))
            if topic is not None and topic is not self._held[order]:
                topic.ids |= self._held.pop(order).ids
        return [Waiting(order, sorted(self._held.pop(order).ids)) for order in taken if order in self._held]
