"""The way of one batch to the broker: in parts where a record is refused, again and again where the broker fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from inorder.model.errors import (
    FencedError,
    RejectedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
)
from inorder.ports.outbox_store import OutboxRow
from inorder.relay.batch import Batch
from inorder.relay.owning import Progress, note_trouble
from inorder.relay.pace import Pace
from inorder.relay.refusal import Refusals, Sender

log = logging.getLogger("inorder.relay")

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
            try:
                term.publish(replace(batch, rows=rows))
            except (FencedError, UnknownOutcomeError):
                raise
            except RejectedError as error:
                parts += self._refusals.refused(term, self._undelivered(term, rows, error.delivered_ids), error)
            except TopicUnavailableError as error:
                parts.append(self._undelivered(term, rows, error.delivered_ids))
                self._let_topic_wait(term, error)
            except TransientError as error:
                parts.append(self._undelivered(term, rows, error.delivered_ids))
                tries += 1
                self._wait_out(error)
                if tries > self._most_tries or not self._leads() or self._clock() > give_up_at:
                    raise  # another may own the shard by now, and not every log would stop us
            else:
                self._progress.published += len(rows)
                self._progress.last_error = ""
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
