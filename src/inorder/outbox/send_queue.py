"""A lane: one queue, one thread and one producer between publishing calls and Kafka.

Calls put errands in, from any thread. The lane's thread takes what is there, up to a batch, sends it, waits until all
of it is acknowledged, tells each errand, and takes what has come meanwhile. So a single message goes at once, and under
load many calls share a batch.

What is authoritative: **the broker's acknowledgements**, which the log collects (`kafka/idempotent_log.py`). The queue
is memory: what a killed process had in it is gone.

Invariants

1. Errands of a topic are sent in the order in which they were put. A batch is finished before the next one is taken.
2. While an errand is neither arrived nor refused, none behind it in its topic is sent. One that is refused for its
   content ends its call, if one waits; otherwise the next ones go on.
3. An errand holds its room in the queue until it is settled. So no more is in memory than was allowed, and whoever puts
   waits for room. Nothing is ever dropped to make some.

| what happens                        | an errand that is waited for       | an errand that is posted |
|---|---|---|
| the broker refuses it               | its call fails, others go on       | the callback is told, others go on |
| its topic is missing or closed      | its call fails after five seconds  | its topic rests, and is tried again |
| the broker is away                  | its call fails when its time is up | is tried without end; the queue fills |
| given up while an answer was due    | its call fails, "in doubt"         | is sent again, perhaps a second time |
| the lane is closed                  | its call fails                     | the callback is told |
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple, Protocol

from inorder.model.errors import RejectedError, TopicUnavailableError, TransientError
from inorder.model.outbox_row import OutboxRow
from inorder.outbox.append import record_size
from inorder.outbox.request import PendingMessage

log = logging.getLogger("inorder.publisher")

BATCH_ERRANDS = 10_000
BATCH_BYTES = 4 * 1024 * 1024
REST_SECONDS = 0.5
"""How long a topic rests that could not be written to."""
BACK_OFF_SECONDS = 0.05
"""Between attempts: the log itself waits about a second before it says that a batch is late."""


class Log(Protocol):
    """What a lane needs of a producer; `kafka/idempotent_log.py` says what the verbs mean."""

    in_doubt: frozenset[int]

    def take_over(self) -> bytes | None: ...

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None: ...

    def give_up(self) -> frozenset[int]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait in a lane."""

    errands: int
    bytes: int


class _Placed(NamedTuple):
    """An errand in its lane; the id is its place there."""

    id: int
    errand: PendingMessage
    size: int

    @property
    def topic(self) -> str:
        return self.errand.record.topic


@dataclass(slots=True)
class _Rest:
    """A topic that could not be written to, and what waits for it, in order."""

    until: float
    waiting: list[_Placed] = field(default_factory=list)


class SendQueue:
    """Sends errands in order, on a thread of its own that begins with the first one."""

    def __init__(
        self, log: Log, bounds: QueueBounds | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._bounds = bounds
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[_Placed] = deque()
        self._next_id = 1
        self._unsettled = self._unsettled_bytes = 0
        self._thread: threading.Thread | None = None
        self._end = ""
        # Only the thread touches these while it runs.
        self._in_hand: list[_Placed] = []
        self._resting: dict[str, _Rest] = {}
        self._left: list[PendingMessage] = []

    def put(self, errands: Sequence[PendingMessage]) -> int:
        """Queues errands, waiting for room; returns how many, which is fewer than all only if the lane is closed."""
        with self._changed:
            for count, errand in enumerate(errands):
                size = record_size(errand.record)
                self._await_room(size)
                if self._end:
                    return count
                self._queue.append(_Placed(self._next_id, errand, size))
                self._next_id += 1
                self._unsettled += 1
                self._unsettled_bytes += size
            self._start()
        return len(errands)

    def flush(self, seconds: float) -> int:
        """Waits until all that was put is settled, or the time is over; returns how many errands are left."""
        with self._changed:
            if not self._is_ours():
                self._changed.wait_for(lambda: not self._unsettled, max(0.0, seconds))
            return self._unsettled

    def close(self) -> list[PendingMessage]:
        """Ends the thread, within a few seconds; returns what was not sent, in order. Each errand has been told."""
        with self._changed:
            self._end = self._end or "The publisher was closed."
            self._changed.notify_all()
        if self._thread is not None and not self._is_ours():
            self._thread.join()
        return self._left

    def _await_room(self, size: int) -> None:
        if self._has_room(size):
            return
        self._start()
        self._changed.wait_for(lambda: self._end or self._has_room(size))

    def _has_room(self, size: int) -> bool:
        # The thread makes the room, so a callback that publishes must not wait for it.
        if self._bounds is None or not self._unsettled or self._is_ours():
            return True
        return self._unsettled < self._bounds.errands and self._unsettled_bytes + size <= self._bounds.bytes

    def _is_ours(self) -> bool:
        return threading.current_thread() is self._thread

    def _start(self) -> None:
        if self._thread is None and not self._end:
            # A daemon, because Python waits for other threads before it lets anybody flush.
            self._thread = threading.Thread(target=self._run, name="inorder publisher", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._log.take_over()
            while self._take_batch():
                while self._in_hand and not self._end:
                    self._attempt()
        except Exception as error:
            log.exception("publisher.thread_ended")
            self._end = f"The publisher's thread ended: {error!r}."
        finally:
            self._finish()

    def _take_batch(self) -> bool:
        """Takes in hand what can be sent now, waiting for it; False when the lane is closed."""
        with self._changed:
            while not self._end:
                self._wake_topics()
                found = self._from_queue()
                taken = [placed.errand.take() for placed in found]
                self._in_hand = list(compress(found, taken))
                self._free(placed for placed, is_taken in zip(found, taken, strict=True) if not is_taken)
                if found:
                    return True
                self._changed.wait(self._until_a_topic_wakes())
        return False

    def _from_queue(self) -> list[_Placed]:
        found: list[_Placed] = []
        size = 0
        while self._queue and len(found) < BATCH_ERRANDS and size < BATCH_BYTES:
            placed = self._queue.popleft()
            if rest := self._resting.get(placed.topic):
                rest.waiting.append(placed)
            else:
                found.append(placed)
                size += placed.size
        return found

    def _wake_topics(self) -> None:
        now = self._clock()
        for topic in [topic for topic, rest in self._resting.items() if rest.until <= now]:
            self._queue.extendleft(reversed(self._resting.pop(topic).waiting))

    def _until_a_topic_wakes(self) -> float | None:
        ends = [rest.until for rest in self._resting.values()]
        return max(0.0, min(ends) - self._clock()) if ends else None

    def _attempt(self) -> None:
        """Sends what is in hand, or goes on waiting for it; what is settled leaves the hand."""
        try:
            self._log.publish([_row(placed) for placed in self._in_hand], b"")
        except (RejectedError, TransientError) as error:
            self._settle(error.delivered_ids, error)
            self._drop_what_is_over(error)
            if isinstance(error, TransientError):
                self._back_off(error.message)
        else:
            self._settle({placed.id for placed in self._in_hand}, None)

    def _drop_what_is_over(self, error: RejectedError | TransientError) -> None:
        if not any(placed.errand.is_over for placed in self._in_hand):
            return
        # A batch that is under way cannot be sent in part, so it is given up first.
        self._settle(self._log.give_up(), error)
        over = [placed for placed in self._in_hand if placed.errand.is_over]
        self._release(over)
        for placed in over:
            placed.errand.left(error.message, in_doubt=False)

    def _back_off(self, reason: str) -> None:
        for placed in self._in_hand:
            placed.errand.late(reason)
        if self._in_hand:
            with self._changed:
                self._changed.wait_for(lambda: self._end, BACK_OFF_SECONDS)

    def _settle(self, arrived: Collection[int], error: RejectedError | TransientError | None) -> None:
        """Tells each errand in hand what became of it; those that are to be sent again stay, or rest."""
        done: list[_Placed] = []
        for placed in self._in_hand:
            if placed.id in arrived:
                placed.errand.arrived()
                done.append(placed)
            elif error is not None and not self._goes_on(placed, error):
                done.append(placed)
        self._release(done)
        if isinstance(error, TopicUnavailableError):
            self._let_rest(error.topic)

    def _goes_on(self, placed: _Placed, error: RejectedError | TransientError) -> bool:
        if isinstance(error, RejectedError) and error.row_id == placed.id:
            placed.errand.refused(error)
            return False
        in_doubt = placed.id in self._log.in_doubt
        is_away = isinstance(error, TopicUnavailableError) and error.topic == placed.topic
        if in_doubt or is_away:
            return placed.errand.delayed(error, in_doubt=in_doubt)
        return True

    def _let_rest(self, topic: str) -> None:
        resting = [placed for placed in self._in_hand if placed.topic == topic]
        if resting:
            self._resting[topic] = _Rest(self._clock() + REST_SECONDS, resting)
            self._in_hand = [placed for placed in self._in_hand if placed.topic != topic]

    def _release(self, done: Sequence[_Placed]) -> None:
        """These leave the hand, and give their room back."""
        gone = {placed.id for placed in done}
        self._in_hand = [placed for placed in self._in_hand if placed.id not in gone]
        with self._changed:
            self._free(done)

    def _free(self, settled: Iterable[_Placed]) -> None:
        for placed in settled:
            self._unsettled -= 1
            self._unsettled_bytes -= placed.size
        self._changed.notify_all()

    def _finish(self) -> None:
        """Gives up what is under way and tells everything that is left."""
        self._settle(self._log.give_up(), None)
        with self._changed:
            resting = [placed for rest in self._resting.values() for placed in rest.waiting]
            left = sorted([*self._in_hand, *self._queue, *resting])
            self._queue.clear()
            self._free(left)
        for placed in left:
            placed.errand.left(self._end, in_doubt=placed.id in self._log.in_doubt)
        self._left = [placed.errand for placed in left]
        self._log.close()


def _row(placed: _Placed) -> OutboxRow:
    record = placed.errand.record
    return OutboxRow(
        placed.id, record.topic, record.key, record.value, record.headers, record.partition, record.timestamp_ms
    )
