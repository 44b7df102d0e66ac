"""A stretch of ids above the offset in which nothing is, too wide to record each of them as missing.

A new offset below an old table has one, a sequence that was set ahead, a table whose old rows were deleted. It is
crossed as a whole once it is proven that no open transaction can bring a row of it, or where the database cannot tell,
after as long as a single missing id would have been waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from inorder.ports.outbox_store import OutboxStore, Scan
from inorder.relay.polling_gaps import Gaps

log = logging.getLogger("inorder.relay")


class Chasm:
    """The chasm that one owner stands before, if there is one."""

    def __init__(self, primary: OutboxStore, *, patience_seconds: float, clock: Callable[[], float]) -> None:
        self._primary = primary
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._last: int | None = None
        self._watch = Gaps()
        self._met_at = 0.0

    def crossed(self, offset: int, last: int) -> int | None:
        """The id up to which there is nothing for ever; None while that is not proven."""
        if last != self._last:
            self._meet(last)
        else:
            self._watch.observe(self._primary.holders())
        if not self._watch.ended() and not self._is_out_of_patience():
            return None
        self._last = None
        # What has appeared in it meanwhile is the new edge.
        above = self._primary.read(Scan(above=offset), 1).rows
        edge = min(last, above[0].id - 1) if above else last
        log.info("relay.chasm_crossed", extra={"from_offset": offset, "to_offset": edge})
        return edge

    def _meet(self, last: int) -> None:
        """Its last id stands for all of it: whoever may bring one of them may bring that."""
        self._last, self._watch, self._met_at = last, Gaps(), self._clock()
        self._watch.miss([last], self._primary.holders())

    def _is_out_of_patience(self) -> bool:
        is_over = bool(self._watch.unwatched()) and self._clock() - self._met_at >= self._patience_seconds
        if is_over:
            log.warning("relay.chasm_unproven: nobody can tell whether a transaction holds ids of it.")
        return is_over
