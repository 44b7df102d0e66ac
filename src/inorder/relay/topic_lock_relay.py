"""The workers of one process, each on a thread; one that dies is replaced after a pause."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from uuid import UUID

from inorder.model.errors import ConfigurationError, TransientError
from inorder.ports.outbox_store import OutboxRow
from inorder.relay.topic_lock import TopicWorker
from inorder.relay.topic_lock_batch import TopicProgress

log = logging.getLogger("inorder.relay")

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
