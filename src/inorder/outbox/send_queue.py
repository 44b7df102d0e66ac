"""`SendQueue`: one queue, one thread and one producer between publish calls and Kafka.

Calls put pending messages into the queue, from any thread. The queue's thread takes what is there, up to a batch, sends
it, waits until all of it is acknowledged, notifies each message, and takes what has come meanwhile. So a single message
is sent at once, and under load many calls share a batch.

What is authoritative: **the broker's acknowledgements**, which the log collects (`kafka/idempotent_producer.py`). The
queue is memory: what a killed process had in it is lost.

Invariants

1. Messages of a topic are sent in the order in which they were put. A batch is finished before the next one is taken.
2. While a message is neither acknowledged nor refused, none behind it in its topic is sent. One that is refused for its
   content ends its request, if one waits for it; otherwise the next ones continue.
3. A message keeps its room in the queue until it is settled. So the memory is bounded, and `put` waits for room.
   Nothing is ever dropped to make room.

| event                                | an awaited message                 | a queued message                       |
|---|---|---|
| the broker refuses it                | its request fails, others continue | the callback is called, others go on   |
| its topic is missing or closed       | its request fails after 5 s        | its topic pauses, and is retried       |
| the broker is down                   | its request fails with its timeout | is retried without limit               |
| given up with a response outstanding | its request fails, "in doubt"      | is sent again, perhaps a second time   |
| the queue is closed                  | its request fails                  | the callback is called                 |
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

from inorder.kafka.shard_log import Delivered, Incomplete, UnfencedLog
from inorder.model.errors import RejectedError, TopicUnavailableError, TransientError
from inorder.model.message import OutboxRow
from inorder.outbox.append import record_size
from inorder.outbox.request import PendingMessage

log = logging.getLogger("inorder.publisher")

BATCH_MESSAGES = 10_000
BATCH_BYTES = 4 * 1024 * 1024
PAUSE_SECONDS = 0.5
"""How long a topic pauses after it could not be written to."""
BACK_OFF_SECONDS = 0.05
"""Between attempts: the log itself waits about a second before it reports a batch as late."""


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait in a queue."""

    messages: int
    bytes: int


class _Queued(NamedTuple):
    """A pending message with its position in the queue."""

    id: int
    pending: PendingMessage
    size: int

    @property
    def topic(self) -> str:
        return self.pending.record.topic


@dataclass(slots=True)
class _Pause:
    """A topic that could not be written to, and the messages that wait for it, in order."""

    until: float
    waiting: list[_Queued] = field(default_factory=list)


class SendQueue:
    """Sends messages in order, on its own thread, which starts with the first one."""

    def __init__(
        self, log: UnfencedLog, bounds: QueueBounds | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._bounds = bounds
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[_Queued] = deque()
        self._next_id = 1
        self._unsettled = self._unsettled_bytes = 0
        self._thread: threading.Thread | None = None
        self._end = ""
        # Only the thread touches these while it runs.
        self._batch: list[_Queued] = []
        self._in_doubt: frozenset[int] = frozenset()
        """Those of the batch that may have arrived."""
        self._paused: dict[str, _Pause] = {}
        self._left: list[PendingMessage] = []

    def put(self, messages: Sequence[PendingMessage]) -> int:
        """Queues messages, waiting for room; returns how many, fewer than all only if the queue is closed."""
        with self._changed:
            for count, message in enumerate(messages):
                size = record_size(message.record)
                self._await_room(size)
                if self._end:
                    return count
                self._queue.append(_Queued(self._next_id, message, size))
                self._next_id += 1
                self._unsettled += 1
                self._unsettled_bytes += size
            self._start()
        return len(messages)

    def flush(self, seconds: float) -> int:
        """Waits until all messages are settled, or the time is over; returns how many are left."""
        with self._changed:
            if not self._is_own_thread():
                self._changed.wait_for(lambda: not self._unsettled, max(0.0, seconds))
            return self._unsettled

    def close(self) -> list[PendingMessage]:
        """Ends the thread within a few seconds; returns what was not sent, in order, with each message notified."""
        with self._changed:
            self._end = self._end or "The publisher was closed."
            self._changed.notify_all()
        if self._thread is not None and not self._is_own_thread():
            self._thread.join()
        return self._left

    def _await_room(self, size: int) -> None:
        if self._has_room(size):
            return
        self._start()
        self._changed.wait_for(lambda: self._end or self._has_room(size))

    def _has_room(self, size: int) -> bool:
        # The thread itself makes room, so a callback that publishes must not wait for it.
        if self._bounds is None or not self._unsettled or self._is_own_thread():
            return True
        return self._unsettled < self._bounds.messages and self._unsettled_bytes + size <= self._bounds.bytes

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _start(self) -> None:
        if self._thread is None and not self._end:
            # A daemon, because Python joins other threads before exit handlers run, and those flush.
            self._thread = threading.Thread(target=self._run, name="inorder publisher", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._log.take_over()
            while self._take_batch():
                while self._batch and not self._end:
                    self._attempt()
        except Exception as error:
            log.exception("publisher.thread_ended")
            self._end = f"The publisher's thread ended: {error!r}."
        finally:
            self._finish()

    def _take_batch(self) -> bool:
        """Takes a batch of what can be sent now, waiting for it; returns False when the queue is closed."""
        with self._changed:
            while not self._end:
                self._resume_topics()
                found = self._from_queue()
                taken = [entry.pending.take() for entry in found]
                self._batch = list(compress(found, taken))
                self._free(entry for entry, is_taken in zip(found, taken, strict=True) if not is_taken)
                if found:
                    return True
                self._changed.wait(self._until_a_topic_resumes())
        return False

    def _from_queue(self) -> list[_Queued]:
        found: list[_Queued] = []
        size = 0
        while self._queue and len(found) < BATCH_MESSAGES and size < BATCH_BYTES:
            entry = self._queue.popleft()
            if pause := self._paused.get(entry.topic):
                pause.waiting.append(entry)
            else:
                found.append(entry)
                size += entry.size
        return found

    def _resume_topics(self) -> None:
        now = self._clock()
        for topic in [topic for topic, pause in self._paused.items() if pause.until <= now]:
            self._queue.extendleft(reversed(self._paused.pop(topic).waiting))

    def _until_a_topic_resumes(self) -> float | None:
        ends = [pause.until for pause in self._paused.values()]
        return max(0.0, min(ends) - self._clock()) if ends else None

    def _attempt(self) -> None:
        """Sends the batch, or continues to wait for it; what is settled leaves the batch."""
        match self._log.publish([_row(entry) for entry in self._batch], b""):
            case Delivered():
                self._settle({entry.id for entry in self._batch}, None)
            case Incomplete(error, delivered, in_doubt):
                self._in_doubt |= in_doubt
                self._settle(delivered, error)
                self._drop_cancelled(error)
                if isinstance(error, TransientError):
                    self._back_off(error.message)

    def _drop_cancelled(self, error: RejectedError | TransientError) -> None:
        if not any(entry.pending.is_over for entry in self._batch):
            return
        # A batch under way cannot be sent in part, so it is given up first.
        self._settle(self._give_up(), error)
        over = [entry for entry in self._batch if entry.pending.is_over]
        self._release(over)
        for entry in over:
            entry.pending.left(error.message, in_doubt=False)

    def _give_up(self) -> frozenset[int]:
        """Drops the batch that is under way; returns what arrived of it."""
        abandoned = self._log.give_up()
        self._in_doubt |= abandoned.in_doubt
        return abandoned.delivered

    def _back_off(self, reason: str) -> None:
        for entry in self._batch:
            entry.pending.late(reason)
        if self._batch:
            with self._changed:
                self._changed.wait_for(lambda: self._end, BACK_OFF_SECONDS)

    def _settle(self, arrived: Collection[int], error: RejectedError | TransientError | None) -> None:
        """Notifies each message of the batch; those that are sent again stay in it, or their topic pauses."""
        done: list[_Queued] = []
        for entry in self._batch:
            if entry.id in arrived:
                entry.pending.arrived()
                done.append(entry)
            elif error is not None and not self._is_kept(entry, error):
                done.append(entry)
        self._release(done)
        if isinstance(error, TopicUnavailableError):
            self._pause_topic(error.topic)

    def _is_kept(self, entry: _Queued, error: RejectedError | TransientError) -> bool:
        if isinstance(error, RejectedError) and error.row_id == entry.id:
            entry.pending.refused(error)
            return False
        in_doubt = entry.id in self._in_doubt
        is_unavailable = isinstance(error, TopicUnavailableError) and error.topic == entry.topic
        if in_doubt or is_unavailable:
            return entry.pending.delayed(error, in_doubt=in_doubt)
        return True

    def _pause_topic(self, topic: str) -> None:
        paused = [entry for entry in self._batch if entry.topic == topic]
        if paused:
            self._paused[topic] = _Pause(self._clock() + PAUSE_SECONDS, paused)
            self._batch = [entry for entry in self._batch if entry.topic != topic]

    def _release(self, done: Sequence[_Queued]) -> None:
        """Removes messages from the batch, and frees their room."""
        released = {entry.id for entry in done}
        self._in_doubt -= released
        self._batch = [entry for entry in self._batch if entry.id not in released]
        with self._changed:
            self._free(done)

    def _free(self, settled: Iterable[_Queued]) -> None:
        for entry in settled:
            self._unsettled -= 1
            self._unsettled_bytes -= entry.size
        self._changed.notify_all()

    def _finish(self) -> None:
        """Gives up what is under way and notifies everything that is left."""
        self._settle(self._give_up(), None)
        with self._changed:
            paused = [entry for pause in self._paused.values() for entry in pause.waiting]
            left = sorted([*self._batch, *self._queue, *paused])
            self._queue.clear()
            self._free(left)
        for entry in left:
            entry.pending.left(self._end, in_doubt=entry.id in self._in_doubt)
        self._left = [entry.pending for entry in left]
        self._log.close()


def _row(entry: _Queued) -> OutboxRow:
    record = entry.pending.record
    return OutboxRow(
        entry.id, record.topic, record.key, record.value, record.headers, record.partition, record.timestamp_ms
    )
