"""The topic-lock protocol: one worker at a time sends the messages of a topic, at least once and in id order.

This is the database backend of Deimos. Any number of workers, in any number of processes, share the topics of a table.
Each worker has its own id and repeats:

    topics ──▶ lock one ──▶ read the oldest ──▶ stamp ──▶ send ──▶ delete ──▶ a full batch? read on
      ▲                                                                            │ no
      └── pause, if no topic had work ◀── unlock (or let it rest, after an error) ◀┘

What is authoritative

- **Who works on a topic: its lock row.** The row names a worker and the time at which that worker last renewed it, by
  the clock of the database. A lock that was not renewed for `lock_seconds` is stale, and any worker may take it.
- **What is still to be sent: the table of messages.** A message that is there may have been sent already.
- **What was delivered: the broker's acknowledgements**, for as long as the producer lives
  (`kafka/idempotent_producer.py`).
- `session_id` is a hint: it says which batch a message was last part of. Deleting by it keeps a batch from deleting
  what a later one has in hand.

Invariants

1. A message is deleted only after its record was acknowledged, or after that of a later message of its key which
   represents it in a compacted topic, or when it is set aside. So nothing is lost.
2. A worker sends only if its lock was confirmed less than half its time ago (`TopicLock.require`), and a heartbeat
   renews it meanwhile. Stamping and deleting check the lock row in the same transaction, which keeps others from taking
   it until the end. So a worker that lost its lock notices before it sends again and before it deletes.
3. Each read begins with the oldest message and is one snapshot. The next read comes after the last delete. So messages
   go in id order, and one that commits late is met by the next read; it overtakes nothing that could have seen it.
4. A failed delete is tried again without sending again, for as long as the lock is ours.

What if …

| the worker …                          | then                                                                        |
|---|---|
| dies                                  | its lock is stale after `lock_seconds`; what it had sent and not deleted is |
|                                       | sent again, in order, by the next one                                       |
| is paused for longer than that        | another takes the lock; it notices before the next send or delete and drops |
|                                       | what it has. What its producer had in its queue may still arrive: repeats   |
| gets no answer to its lock            | it repeats the request under the same id, and has it                        |
| gets no answer to a stamp             | the topic rests; nothing was sent                                           |
| gets no answer to a delete            | it deletes again; what is gone is gone                                      |
| loses the database while sending      | it keeps waiting for the broker, then deletes once the database is back;    |
|                                       | after half the time of its lock it sends nothing more and drops the batch   |
| loses the broker                      | it waits for `queue` seconds, then the topic rests                          |
| finds the topic deleted or closed     | the topic rests; all others continue                                        |
| meets a record that is refused        | that record waits, then is set aside; the rest continues (`parking.py`)     |
| is paused before it sets one aside    | it may move a message that its successor is about to send: one that is both |
|                                       | sent and set aside, and a retry of it is one more repeat                    |
| is stopped                            | it finishes the batch, unlocks and ends; a failing batch is dropped         |

**A topic rests** when it is unlocked with `error` set and a fresh time: no worker can lock it until that time is stale,
and then any worker can. (The document that describes the backend clears the time as well. Read literally, such a topic
could never be locked again.) `retries` counts the rests since the topic was last sent completely.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID, uuid4

from inorder.kafka.shard_log import ShardLog
from inorder.model.errors import ConfigurationError, FencedError, InorderError, TopicPausedError, TransientError
from inorder.model.message import OutboxRow
from inorder.relay.events import BatchProduced, notify
from inorder.relay.options import wait_out
from inorder.relay.parking import Refusals
from inorder.relay.stores.ports import ExceededStore, Sleeper, TopicStore
from inorder.relay.topic_lock_batch import (
    BatchContext,
    LockHeartbeat,
    TopicBatch,
    TopicLock,
    TopicLockOptions,
    TopicProgress,
    includes,
)

log = logging.getLogger("inorder.relay")

TURN_SECONDS = 10.0
"""After this long on one topic a worker turns to the others, so that a busy topic does not starve them."""
TOUCH_SECONDS = 1.0
"""Between updates of the lock rows of empty topics."""


class TopicWorker:
    """One worker, on the thread that runs it; it owns its store and its logs."""

    def __init__(
        self,
        store: TopicStore,
        exceeded: ExceededStore,
        log_of: Callable[[str], ShardLog],
        idle: IdlePause,
        options: TopicLockOptions,
    ) -> None:
        """`log_of` returns the log of a topic; topics may share one."""
        self.id = uuid4()
        self.progress = TopicProgress()
        self._store = store
        self._exceeded = exceeded
        self._log_of = log_of
        self._idle = idle
        self._stop = options.stop
        self._options = options
        self._clock = options.clock
        self._logs: list[ShardLog] = []
        self._touched_at = float("-inf")
        self._paused: dict[str, float] = {}
        """When to look again at topics that an operator has paused."""
        self._in_flight: Sequence[OutboxRow] = ()
        self._has_lock = False
        heartbeat, refusals = LockHeartbeat(options.lock_seconds), Refusals(options, self.progress)
        self._context = BatchContext(store, exceeded, heartbeat, self.id, options, self.progress, refusals)

    @property
    def leader_id(self) -> UUID | None:
        """The worker's id while it has locked a topic."""
        return self.id if self._has_lock else None

    @property
    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows of the batch in hand; thread-safe."""
        return self._in_flight

    def run(self) -> None:
        """Works until `stop` is set; raises errors that need an operator."""
        while not self._stop.is_set():
            try:
                seen = self._store.topics()
                if not self._go_round(seen):
                    self._touch_empty(seen)
                    self._idle.pause(partial(self._has_other_topics, frozenset(seen)))
            except TransientError as error:
                wait_out(error, self.progress, self._options)

    def close(self) -> None:
        """Closes logs and connections; nothing more is sent."""
        self._context.heartbeat.close()
        self._drop_logs()
        self._store.close()
        self._exceeded.close()

    def _go_round(self, topics: list[str]) -> bool:
        """Works on each topic that can be locked; returns whether any had messages."""
        worked = False
        # Each worker begins at a random topic, so that they do not all request the same lock.
        for topic in random.sample(topics, len(topics)):
            if self._stop.is_set():
                break
            if self._paused.get(topic, 0.0) > self._clock():
                continue
            if self._store.lock(topic, self.id):
                worked = self._work_on(topic) or worked
        return worked

    def _work_on(self, topic: str) -> bool:
        """Sends all messages of the topic; returns whether any was sent. After an error the topic rests."""
        lock = TopicLock(self._store, topic, self.id, lock_seconds=self._options.lock_seconds, clock=self._clock)
        before, self._has_lock = self.progress.processed, True
        try:
            self._send_all(lock)
            self._store.unlock(topic, self.id)
            self.progress.last_error = ""
        except TopicPausedError as error:  # it does not rest: it is sent soon after it is resumed
            self.progress.last_error = str(error)
            self._paused[topic] = self._clock() + self._options.pace.topic
            self._store.unlock(topic, self.id)
        except FencedError as error:
            self._drop_logs()
            self._report_failure(topic, error)
            log.warning("relay.fenced", extra={"topic": topic, "error": str(error)})
        except Exception as error:
            self._drop_logs()
            self._report_failure(topic, error)
            self._rest(topic)
            if isinstance(error, ConfigurationError) or not isinstance(error, InorderError):
                raise
        finally:
            self._in_flight, self._has_lock = (), False
        return self.progress.processed > before

    def _send_all(self, lock: TopicLock) -> None:
        until = self._clock() + TURN_SECONDS
        while True:
            page = self._store.read(lock.topic, self._options.batch_size, self._options.batch_bytes)
            if page.rows and not self._send(lock, page.rows):
                return
            if not page.is_full or self._stop.is_set() or self._clock() > until:
                return

    def _send(self, lock: TopicLock, rows: list[OutboxRow]) -> bool:
        """Sends one batch; False if `stop` was set before its end."""
        session, self._in_flight = uuid4(), rows
        with lock.confirming():
            stamped = self._store.stamp(lock.topic, self.id, session, [row.id for row in rows])
        if stamped < len(rows):
            return True  # some of them were deleted meanwhile; the next read shows what is left
        if includes(self._options.log_topics, lock.topic):
            _log_messages(rows)
        compacts = includes(self._options.compact_topics, lock.topic)
        batch = TopicBatch(self._context, lock, self._log(lock.topic), session, rows, compacts)
        finished = batch.run()
        if finished:
            notify(self._options.on_event, BatchProduced(lock.topic, tuple(rows), None))
        else:
            self._drop_logs()
        self._in_flight = ()
        return finished

    def _log(self, topic: str) -> ShardLog:
        found = self._log_of(topic)
        if not any(found is each for each in self._logs):
            found.take_over()
            self._logs.append(found)
        return found

    def _drop_logs(self) -> None:
        """Nothing that is still in a queue is sent after this."""
        logs, self._logs = self._logs, []
        for each in logs:
            each.close()

    def _rest(self, topic: str) -> None:
        try:
            self._store.fail(topic, self.id)
        except TransientError as error:
            log.warning("relay.lock_left", extra={"topic": topic, "error": str(error)})

    def _has_other_topics(self, seen: frozenset[str]) -> bool:
        return not seen.issuperset(self._store.topics())

    def _touch_empty(self, seen: list[str]) -> None:
        if self._clock() - self._touched_at >= TOUCH_SECONDS:
            self._touched_at = self._clock()
            self._store.touch_empty(seen)

    def _report_failure(self, topic: str, error: Exception) -> None:
        self.progress.last_error = str(error)
        if not isinstance(error, FencedError):
            log.warning("relay.topic_rests", extra={"topic": topic, "error": str(error)})
        notify(self._options.on_event, BatchProduced(topic, tuple(self._in_flight), error))


def _log_messages(rows: Sequence[OutboxRow]) -> None:
    for row in rows:
        fields = {"topic": row.topic, "row": row.id, "key": _text(row.key), "value": _text(row.value)}
        log.info("relay.message", extra=fields)


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode(errors="backslashreplace")


RESTART_SECONDS = 5.0


class TopicRelay:
    """The workers of one process, each on its own thread, until `stop` is set or one fails with a configuration error.

    A worker that dies of any other error is replaced after a pause.
    """

    def __init__(
        self,
        new_worker: Callable[[], TopicWorker],
        *,
        workers: int,
        stop: threading.Event,
        prepare: Callable[[], None] = lambda: None,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        """`prepare` is called before the first worker is created; it raises if this instance must not publish."""
        self._new_worker = new_worker
        self._count = workers
        self._stop = stop
        self._prepare = prepare
        self._restart_seconds = restart_seconds
        self._changed = threading.Lock()
        self._workers: list[TopicWorker] = []
        self._ended = TopicProgress()
        self._failure: ConfigurationError | None = None

    @property
    def progress(self) -> WorkersProgress:
        """What all workers have done, including those that died."""
        with self._changed:
            return WorkersProgress(list(self._workers), self._ended)

    def in_flight(self) -> list[OutboxRow]:
        """The rows that workers have in hand; thread-safe."""
        with self._changed:
            return [row for worker in self._workers for row in worker.in_flight]

    def run(self) -> None:
        """Returns after `stop` is set and every worker has ended."""
        self._prepare_first()
        names = [f"inorder-topics-{number}" for number in range(self._count)]
        threads = [threading.Thread(target=self._keep, name=name, daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _prepare_first(self) -> None:
        while not self._stop.is_set():
            try:
                self._prepare()
                self._ended.last_error = ""
                return
            except TransientError as error:
                self._ended.last_error = str(error)
                log.warning("relay.waiting", extra={"error": str(error), "code": error.code})
                self._stop.wait(self._restart_seconds / 10)

    def _keep(self) -> None:
        """Runs one worker after the other, until the end."""
        while not self._stop.is_set():
            worker = self._new_worker()
            with self._changed:
                self._workers.append(worker)
            try:
                worker.run()
            except ConfigurationError as error:
                self._failure = error
                self._stop.set()
            except Exception:
                log.exception("relay.worker_died", extra={"worker": str(worker.id)})
                self._stop.wait(self._restart_seconds)
            finally:
                self._forget(worker)

    def _forget(self, worker: TopicWorker) -> None:
        try:
            worker.close()
        finally:
            with self._changed:
                self._workers.remove(worker)
                self._ended.published += worker.progress.published
                self._ended.processed += worker.progress.processed
                self._ended.exceeded += worker.progress.exceeded


class WorkersProgress:
    """What several workers have done, at one moment."""

    def __init__(self, workers: list[TopicWorker], ended: TopicProgress) -> None:
        each = [ended, *(worker.progress for worker in workers)]
        self.leader_id: UUID | None = next((worker.leader_id for worker in workers if worker.leader_id), None)
        self.published = sum(progress.published for progress in each)
        self.processed = sum(progress.processed for progress in each)
        self.exceeded = sum(progress.exceeded for progress in each)
        self.last_error = next((progress.last_error for progress in each if progress.last_error), "")


IDLE_SECONDS = 0.5

LOOK_SECONDS = 0.2
"""How soon an idle worker notices that `stop` is set."""


class IdlePause:
    """Where idle workers of a process wait: one listens for publishers, the others wait for it, or for a while."""

    def __init__(
        self,
        sleeper: Sleeper,
        *,
        stop: threading.Event,
        idle_seconds: float = IDLE_SECONDS,
        brief_seconds: float | None = None,
    ) -> None:
        """`brief_seconds` is the pause while publishers cannot notify, because one is about to commit."""
        self._sleeper = sleeper
        self._stop = stop
        self._idle_seconds = idle_seconds
        self._brief_seconds = idle_seconds if brief_seconds is None else brief_seconds
        self._listening = threading.Lock()
        self._woken = threading.Condition()

    def pause(self, has_work: Callable[[], bool]) -> None:
        """Returns when a publisher notified, or after a while; `has_work` finds what was committed just before."""
        if not self._listening.acquire(blocking=False):
            self._wait(self._wait_for_listener, self._idle_seconds)
            return
        try:
            woken = self._listen(has_work)
        finally:
            self._listening.release()
        if woken:
            with self._woken:
                self._woken.notify_all()

    def close(self) -> None:
        self._sleeper.close()

    def _listen(self, has_work: Callable[[], bool]) -> bool:
        asleep = self._sleeper.begin_sleep()
        try:
            if asleep and has_work():
                return True
            return self._wait(self._sleeper.wait, self._idle_seconds if asleep else self._brief_seconds)
        finally:
            self._sleeper.end_sleep()

    def _wait_for_listener(self, seconds: float) -> bool:
        with self._woken:
            return self._woken.wait(seconds)

    def _wait(self, wait: Callable[[float], bool], seconds: float) -> bool:
        """Waits up to `seconds`, or until `stop` is set; returns whether a publisher notified."""
        left = seconds
        while left > 0 and not self._stop.is_set():
            if wait(min(left, LOOK_SECONDS)):
                return True
            left -= LOOK_SECONDS
        return False
