"""The topic-lock protocol: messages of a topic go to Kafka from one worker at a time, at least once and in id order.

This is the database backend of Deimos. Any number of workers, in any number of processes, share the topics of a table.
Each worker has an id of its own and goes round:

    topics ──▶ lock one ──▶ read the oldest ──▶ stamp ──▶ send ──▶ delete ──▶ a full batch? read on
      ▲                                                                            │ no
      └── pause, if no topic had work ◀── unlock (or let it rest, after an error) ◀┘

What is authoritative

- **Who works on a topic: its lock row.** The row names a worker and the time at which that worker last renewed it, by
  the clock of the database. A lock that was not renewed for `lock_seconds` is stale, and anybody may take it.
- **What is still to be sent: the table of messages.** A message that is there may have been sent already.
- **What was delivered: the broker's acknowledgements**, for as long as the producer lives (`kafka/idempotent_producer.py`).
- `session_id` is a hint: it says which batch a message was last part of. Deleting by it keeps a batch from deleting
  what a later one has in hand.

Invariants

1. A message is deleted only after its record was acknowledged, or after that of a later message of its key which stands
   for it in a compacted topic, or when it is set aside. So nothing is lost.
2. Whoever sends had the lock confirmed less than half its time ago (`Hold.require`), and a heart renews it meanwhile.
   Whoever stamps or deletes looks at the lock row in the same transaction, which keeps others from taking it until the
   end. So a worker that lost its lock notices before it sends again and before it deletes.
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
| gets no answer to its lock            | it asks again under the same id, and has it                                 |
| gets no answer to a stamp             | the topic rests; nothing was sent                                           |
| gets no answer to a delete            | it deletes again; what is gone is gone                                      |
| loses the database while sending      | it goes on waiting for the broker, then deletes once the database is back;  |
|                                       | after half the time of its lock it sends nothing more and drops the batch   |
| loses the broker                      | it waits for `queue` seconds, then lets the topic rest                      |
| finds the topic deleted or closed     | the topic rests; all others go on                                           |
| meets a record that is refused        | that record waits, then is set aside; the rest goes on (`topic_lock_batch`) |
| is paused before it sets one aside    | it may move a message that its successor is about to send: one that is both |
|                                       | sent and set aside, and a retry of it is one more repeat                    |
| is told to stop                       | it finishes the batch, unlocks and ends; a batch in trouble is dropped      |

**To rest** is to be unlocked with `error` set and a fresh time: nobody can lock the topic until that time is stale, and
then anybody can. (The document that describes the backend clears the time as well. Read literally, such a topic could
never be locked again.) `retries` counts the rests since the topic was last sent to the end.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

from inorder.kafka.shard_log import ShardLog
from inorder.model.errors import ConfigurationError, FencedError, InorderError, TransientError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.batch import Pace
from inorder.relay.events import BatchProduced
from inorder.relay.parking import Policy
from inorder.relay.stores.ports import ExceededStore, Sleeper, TopicStore
from inorder.relay.topic_lock_batch import Heart, Hold, Means, Sending, TopicProgress, Topics, includes

log = logging.getLogger("inorder.relay")

TURN_SECONDS = 10.0
"""After this long on one topic a worker looks at the others first, so that a busy one does not starve them."""
TOUCH_SECONDS = 1.0
"""Between notes that empty topics are empty."""


@dataclass(frozen=True, slots=True)
class TopicLockOptions:
    """How workers work; `pace.queue` bounds the wait for the broker, `pace.back_off` follows a failure."""

    batch_size: int = 1000
    delete_group_size: int = 1000
    lock_seconds: float = 60.0
    max_attempts: int = 5
    compact_topics: Topics = frozenset()
    log_topics: Topics = frozenset()
    policy: Callable[[str], Policy] = lambda _topic: "park"
    on_event: Callable[[BatchProduced], None] = lambda _event: None
    pace: Pace = Pace()  # noqa: RUF009 - it is frozen
    clock: Callable[[], float] = time.monotonic


class TopicWorker:
    """One worker, on the thread that runs it; the store and the logs are its own."""

    def __init__(
        self,
        store: TopicStore,
        exceeded: ExceededStore,
        log_of: Callable[[str], ShardLog],
        rest: Rest,
        *,
        stop: threading.Event,
        options: TopicLockOptions,
    ) -> None:
        """`log_of` gives the log of a topic; topics may share one."""
        self.id = uuid4()
        self.progress = TopicProgress()
        self._store = store
        self._exceeded = exceeded
        self._log_of = log_of
        self._rest = rest
        self._stop = stop
        self._options = options
        self._clock = options.clock
        self._logs: list[ShardLog] = []
        self._touched_at = float("-inf")
        self._in_flight: Sequence[OutboxRow] = ()
        self._holds = False
        heart = Heart(options.lock_seconds)
        self._means = Means(
            store,
            exceeded,
            heart,
            self.id,
            stop,
            options.clock,
            options.policy,
            options.pace,
            options.max_attempts,
            options.delete_group_size,
        )

    @property
    def leader_id(self) -> UUID | None:
        """The worker's id while it has a topic."""
        return self.id if self._holds else None

    @property
    def in_flight(self) -> Sequence[OutboxRow]:
        """The rows of the batch in hand; any thread may ask."""
        return self._in_flight

    def run(self) -> None:
        """Goes round until `stop` is set; raises what only a person can mend."""
        while not self._stop.is_set():
            try:
                seen = self._store.topics()
                if not self._go_round(seen):
                    self._touch_empty(seen)
                    self._rest.pause(partial(self._has_other_topics, frozenset(seen)))
            except TransientError as error:
                self._note(error)
                self._stop.wait(self._options.pace.back_off)

    def close(self) -> None:
        """Gives everything back; nothing more is sent."""
        self._means.heart.close()
        self._drop_logs()
        self._store.close()
        self._exceeded.close()

    def _go_round(self, topics: list[str]) -> bool:
        """Works on each topic that can be locked; whether any had something to send."""
        worked = False
        # Each worker begins elsewhere, so that they do not all ask for the same lock.
        for topic in random.sample(topics, len(topics)):
            if self._stop.is_set():
                break
            if self._store.lock(topic, self.id):
                worked = self._work_on(topic) or worked
        return worked

    def _work_on(self, topic: str) -> bool:
        """Sends the topic to its end; whether anything was sent. An error lets it rest."""
        hold = Hold(self._store, topic, self.id, lock_seconds=self._options.lock_seconds, clock=self._clock)
        before, self._holds = self.progress.processed, True
        try:
            self._send_to_the_end(hold)
            self._store.unlock(topic, self.id)
            self.progress.last_error = ""
        except FencedError as error:
            self._drop_logs()
            self._tell_failed(topic, error)
            log.warning("relay.fenced: %s", error, extra={"topic": topic})
        except Exception as error:
            self._drop_logs()
            self._tell_failed(topic, error)
            self._let_rest(topic)
            if isinstance(error, ConfigurationError) or not isinstance(error, InorderError):
                raise
        finally:
            self._in_flight, self._holds = (), False
        return self.progress.processed > before

    def _send_to_the_end(self, hold: Hold) -> None:
        until = self._clock() + TURN_SECONDS
        while True:
            rows = self._store.read(hold.topic, self._options.batch_size)
            if rows and not self._send(hold, rows):
                return
            if len(rows) < self._options.batch_size or self._stop.is_set() or self._clock() > until:
                return

    def _send(self, hold: Hold, rows: list[OutboxRow]) -> bool:
        """One batch; False where it was told to stop before the end."""
        session, self._in_flight = uuid4(), rows
        with hold.confirming():
            stamped = self._store.stamp(hold.topic, self.id, session, [row.id for row in rows])
        if stamped < len(rows):
            return True  # somebody took some of them out of the table meanwhile; the next read tells what is left
        if includes(self._options.log_topics, hold.topic):
            _log_messages(rows)
        compacts = includes(self._options.compact_topics, hold.topic)
        sending = Sending(self._means, self.progress, hold, self._log(hold.topic), session, rows, compacts)
        finished = sending.run()
        if finished:
            self._tell(BatchProduced(hold.topic, tuple(rows), None))
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

    def _let_rest(self, topic: str) -> None:
        try:
            self._store.fail(topic, self.id)
        except TransientError as error:
            log.warning("relay.lock_left: %s", error, extra={"topic": topic})

    def _has_other_topics(self, seen: frozenset[str]) -> bool:
        return not seen.issuperset(self._store.topics())

    def _touch_empty(self, seen: list[str]) -> None:
        if self._clock() - self._touched_at >= TOUCH_SECONDS:
            self._touched_at = self._clock()
            self._store.touch_empty(seen)

    def _note(self, error: Exception) -> None:
        self.progress.last_error = str(error)
        log.warning("relay.waiting: %s", error)

    def _tell_failed(self, topic: str, error: Exception) -> None:
        self.progress.last_error = str(error)
        if not isinstance(error, FencedError):
            log.warning("relay.topic_rests: %s", error, extra={"topic": topic})
        self._tell(BatchProduced(topic, tuple(self._in_flight), error))

    def _tell(self, event: BatchProduced) -> None:
        try:
            self._options.on_event(event)
        except Exception:
            log.exception("relay.handler_failed", extra={"event_kind": type(event).__name__})


def _log_messages(rows: Sequence[OutboxRow]) -> None:
    for row in rows:
        shown = {"topic": row.topic, "row": row.id, "key": _text(row.key), "value": _text(row.value)}
        log.info("relay.message", extra=shown)


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode(errors="backslashreplace")


# The workers of one process, each on a thread; one that dies is replaced after a pause.


RESTART_SECONDS = 5.0


class TopicRelay:
    """Runs workers until it is told to stop, or until one ends by what only a person can mend."""

    def __init__(
        self,
        new_worker: Callable[[], TopicWorker],
        *,
        workers: int,
        stop: threading.Event,
        prepare: Callable[[], None] = lambda: None,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        """`prepare` is called before the first worker is made; it raises if this instance may not work."""
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
    def progress(self) -> Summary:
        """What all workers have done, also those that died."""
        with self._changed:
            return Summary(list(self._workers), self._ended)

    def in_flight(self) -> list[OutboxRow]:
        """The rows in the hands of all workers; any thread may ask."""
        with self._changed:
            return [row for worker in self._workers for row in worker.in_flight]

    def run(self) -> None:
        """Returns after `stop` is set and every worker has ended."""
        self._until_prepared()
        names = [f"inorder-topics-{number}" for number in range(self._count)]
        threads = [threading.Thread(target=self._keep, name=name, daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _until_prepared(self) -> None:
        while not self._stop.is_set():
            try:
                self._prepare()
                self._ended.last_error = ""
                return
            except TransientError as error:
                self._ended.last_error = str(error)
                log.warning("relay.waiting: %s", error)
                self._stop.wait(self._restart_seconds / 10)

    def _keep(self) -> None:
        """One worker after the other, until the end."""
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


class Summary:
    """What several workers have done, at one moment."""

    def __init__(self, workers: list[TopicWorker], ended: TopicProgress) -> None:
        each = [ended, *(worker.progress for worker in workers)]
        self.leader_id: UUID | None = next((worker.leader_id for worker in workers if worker.leader_id), None)
        self.published = sum(progress.published for progress in each)
        self.processed = sum(progress.processed for progress in each)
        self.exceeded = sum(progress.exceeded for progress in each)
        self.last_error = next((progress.last_error for progress in each if progress.last_error), "")


# Where idle workers of a process rest: one of them listens for publishers, the others wait for it, or for a while.

IDLE_SECONDS = 0.5


LOOK_SECONDS = 0.2
"""How soon a resting worker notices that it is to stop."""


class Rest:
    """Shared by the workers of a relay."""

    def __init__(
        self,
        sleeper: Sleeper,
        *,
        stop: threading.Event,
        idle_seconds: float = IDLE_SECONDS,
        brief_seconds: float | None = None,
    ) -> None:
        """`brief_seconds` is the pause while publishers cannot be asked, because one is about to commit."""
        self._sleeper = sleeper
        self._stop = stop
        self._idle_seconds = idle_seconds
        self._brief_seconds = idle_seconds if brief_seconds is None else brief_seconds
        self._listening = threading.Lock()
        self._woken = threading.Condition()

    def pause(self, has_work: Callable[[], bool]) -> None:
        """Returns when a publisher woke us, or after a while; `has_work` finds what was committed just before."""
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
        """Gives the connection back."""
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
        """Waits so long, and no longer than until the stop; whether somebody woke us."""
        left = seconds
        while left > 0 and not self._stop.is_set():
            if wait(min(left, LOOK_SECONDS)):
                return True
            left -= LOOK_SECONDS
        return False
