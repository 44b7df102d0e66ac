"""What happens to a record that cannot be sent: attempts, then the policy of its topic.

Only errors of the record come here. It is found among its batch, its key is held so that nothing overtakes it, and when
its attempts are used up it is set aside, skipped or stood still for (`parking.py` says what waits).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from inorder.model.errors import RejectedError
from inorder.ports.exceeded_store import Exceeding
from inorder.ports.outbox_store import OutboxRow
from inorder.relay.batch import Batch
from inorder.relay.pace import Pace
from inorder.relay.parking import Policy, halves

log = logging.getLogger("inorder.relay")

Parts = Sequence[Sequence[OutboxRow]]
"""What is left to do of a batch, last part first."""


class Sender(Protocol):
    """What a term offers to whoever sends its batches."""

    def sift(self, rows: Sequence[OutboxRow], /) -> list[OutboxRow]:
        """The rows that may go now; those of held keys and topics wait."""

    def publish(self, batch: Batch, /) -> None:
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
