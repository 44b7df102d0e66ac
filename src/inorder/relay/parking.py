"""Which keys wait, and why: one bad record holds its key and nothing else.

A record that the broker refuses for its content is *held*, and with it every later record of its key, so that none
overtakes it. It is tried again after a pause. When its attempts are used up, the policy of its topic decides:

    refused ──▶ held ──(attempts left)──▶ tried again ──▶ published: the key goes on
                 │
                 └──(used up)──▶ exceeded ──▶ park: the key waits for a person    (order kept, the default)
                                          ──▶ skip: the key goes on without it
                                 block: everything waits, the record keeps its place

Only ids are kept of what is held: the rows stay in the table and are read again when their turn comes, so that a parked
key with a million rows costs a million numbers and not their values. A record without a key has no order to keep; it is
held alone.

A topic that is deleted or closed to us waits as a whole, without using up anybody's attempts. It is tried with its
first row, and the rest follows once that went through.

Nothing here is authoritative. A new owner knows from the store which keys are parked, finds the waiting rows by its
first sweep, and counts attempts anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from inorder.kafka.shard_log import Delivery
from inorder.model.errors import RejectedError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import Batch, Pace
from inorder.relay.stores.ports import Exceeding, Key

Policy = Literal["park", "skip", "block"]

Order = tuple[str, bytes] | tuple[str, int] | tuple[str]
"""What must stay in order: a topic and key, or one record without a key by its id; or a topic that waits as a whole."""


def order_of(row: OutboxRow) -> Order:
    """What this row must stay in order with."""
    return (row.topic, row.key) if row.key is not None else (row.topic, row.id)


@dataclass(slots=True)
class Held:
    """Rows that wait, by id, the bad one first; `retry_at` is None while only a person can help."""

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
        """How many to try first: one, where all of them probably share one fate."""
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
        """The rows that may go now; those that come after a held one of their key are noted to wait."""
        if not self._held:
            return list(rows)
        return [row for row in rows if not self._waits(row)]

    def refuse(self, row: OutboxRow) -> int:
        """Counts one more refusal of the row; returns how many attempts it has used up."""
        self._attempts[row.id] = self._attempts.get(row.id, 0) + 1
        return self._attempts[row.id]

    def hold(self, row: OutboxRow, retry_at: float) -> None:
        """Holds the row and its key until `retry_at`; a key that is parked stays so, and the row waits with it."""
        held = self._held.setdefault(self._order(row), Held(row.id, retry_at=retry_at))
        held.bad = min(held.bad, row.id)
        held.ids.add(row.id)
        if held.retry_at is not None:
            held.retry_at = retry_at

    def hold_topic(self, topic: str, retry_at: float) -> None:
        """Holds everything of the topic until `retry_at`."""
        self._held.setdefault((topic,), Held(bad=0)).retry_at = retry_at

    def exceed(self, row: OutboxRow, *, parks: bool, now: float) -> None:
        """The row is gone from the outbox: its key waits for a person, or goes on at once without it."""
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
        """Takes keys that the store no longer calls parked out of hold, with the ids that waited."""
        return self._take(order for order in self.parked() if order not in parked)

    def parked(self) -> list[Order]:
        """What waits for a person."""
        return [order for order, held in self._held.items() if held.retry_at is None]

    def due_at(self) -> float | None:
        """When the next one is due that time alone brings back; None if there is none."""
        return min((held.retry_at for held in self._held.values() if held.retry_at is not None), default=None)

    def holds(self) -> bool:
        """Whether anything waits at all."""
        return bool(self._held)

    def published(self, ids: Iterable[int]) -> None:
        """Forgets the attempts of rows that went through after all."""
        if self._attempts:
            for id in ids:
                self._attempts.pop(id, None)

    def waits_again(self, waiting: Waiting, place: int) -> bool:
        """Whether what was taken out is held again; its rows from `place` on are put back to wait then."""
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
        return [Waiting(order, sorted(self._held.pop(order).ids)) for order in list(orders)]


def halves(rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    """Both halves of a batch in which some record was refused and nobody knows which."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


# What happens to a record that cannot be sent: attempts, then the policy of its topic.
#
# Only errors of the record come here. It is found among its batch, its key is held so that nothing overtakes it, and
# when its attempts are used up it is set aside, skipped or stood still for (`parking.py` says what waits).

log = logging.getLogger("inorder.relay")

Parts = Sequence[Sequence[OutboxRow]]
"""What is left to do of a batch, last part first."""


class Sender(Protocol):
    """What a term offers to whoever sends its batches."""

    def sift(self, rows: Sequence[OutboxRow], /) -> list[OutboxRow]:
        """The rows that may go now; those of held keys and topics wait."""

    def publish(self, batch: Batch, /) -> Delivery:
        """Sends the batch with a marker, as `ShardLog.publish`."""

    def settle_delivered(self, ids: Sequence[int], /) -> None:
        """These arrived, perhaps although the rest of their batch did not."""

    def refuse(self, row: OutboxRow, /) -> int:
        """Counts a refusal; returns how many attempts the row has used up."""

    def hold(self, row: OutboxRow, retry_at: float, /) -> None:
        """Holds a refused row and its key."""

    def hold_topic(self, topic: str, retry_at: float, /) -> None:
        """Holds everything of a topic."""

    def exceed(self, row: OutboxRow, exceeding: Exceeding, /) -> None:
        """Sets a row aside whose attempts are used up."""

    def read_again(self, ids: Sequence[int], /) -> list[OutboxRow]:
        """Rows as they are now, in id order."""


class Counts(Protocol):
    """Where the figures go."""

    exceeded: int
    last_error: str


class Refusals:
    """Decides what becomes of refused records, for one loop."""

    def __init__(
        self,
        counts: Counts,
        max_attempts: int,
        policy: Callable[[str], Policy],
        pace: Pace,
        clock: Callable[[], float],
        stop: threading.Event,
    ) -> None:
        self._counts = counts
        self._max_attempts = max_attempts
        self._policy = policy
        self._pace = pace
        self._clock = clock
        self._stop = stop

    def refused(self, term: Sender, rows: list[OutboxRow], error: RejectedError) -> Parts:
        """The rows without the guilty one's key, or both halves to search for it."""
        guilty = rows[0] if len(rows) == 1 else next((row for row in rows if row.id == error.row_id), None)
        if guilty is None:
            self._counts.last_error = str(error)
            return halves(rows)[::-1]
        return self._settle(term, rows, guilty, error, term.refuse(guilty))

    def flawed(self, term: Sender, rows: list[OutboxRow], row: OutboxRow) -> Parts:
        """A row that was written wrongly: trying it again would change nothing, so it has no attempts."""
        error = RejectedError(f"Outbox row {row.id} is malformed: {row.flaw}", row_id=row.id)
        return self._settle(term, rows, row, error, max(term.refuse(row), self._max_attempts))

    def _settle(
        self, term: Sender, rows: list[OutboxRow], guilty: OutboxRow, error: RejectedError, attempts: int
    ) -> Parts:
        self._counts.last_error = str(error)
        policy = self._policy(guilty.topic)
        log.warning("relay.refused: %s", error, extra={"row": guilty.id, "attempts": attempts, "policy": policy})
        if policy == "block":
            return [self._stand_still(term, rows, error, attempts)]
        term.hold(guilty, self._clock() + self._pace.back_off)
        if attempts >= self._max_attempts:
            parks = policy == "park" and guilty.key is not None and guilty.topic != ""
            self._exceed(term, guilty, Exceeding(guilty.id, attempts, error.code, error.message, parks))
        return [rows]

    def _exceed(self, term: Sender, row: OutboxRow, exceeding: Exceeding) -> None:
        term.exceed(row, exceeding)
        self._counts.exceeded += 1
        log.error("relay.exceeded: %s", exceeding.reason, extra={"row": row.id, "parks": exceeding.parks})

    def _stand_still(self, term: Sender, rows: list[OutboxRow], error: RejectedError, attempts: int) -> list[OutboxRow]:
        """The policy `block`: everything waits, and the rows are read again in case somebody repaired them."""
        exceeded = attempts >= self._max_attempts
        if exceeded:
            log.error("relay.blocked: %s", error)
        self._stop.wait(self._pace.blocked if exceeded else self._pace.back_off)
        return term.read_again([row.id for row in rows])
