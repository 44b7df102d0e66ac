"""The relay as a library: start it in your process, stop it, read its state."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self
from uuid import UUID

from inorder.model.errors import ConfigurationError, InorderError
from inorder.model.message import OutboxRow
from inorder.relay.events import RelayEvent
from inorder.relay.loop import RelayProgress
from inorder.relay.parts import RelayParts
from inorder.relay.runners import Hooks, build_runners
from inorder.relay.topic_lock import WorkersProgress
from inorder.settings import Settings

log = logging.getLogger("inorder.relay")

_KEEP_SECONDS = 3600.0


class RelayState(StrEnum):
    """The state of a relay; it only moves forward."""

    created = "created"
    running = "running"
    stopping = "stopping"
    stopped = "stopped"


class Relay:
    """The relay of your settings, on threads of this process: one for each shard, or each worker of `topic-lock`.

    >>> with Relay(Settings.load()) as relay:  # doctest: +SKIP
    ...     relay.wait()

    When one shard ends with an error that needs an operator, all of them stop and `wait` raises it: another instance
    may be able to work.
    """

    def __init__(self, settings: Settings) -> None:
        self._parts = RelayParts(settings)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._handler: Callable[[RelayEvent], None] = lambda _event: None
        hooks = Hooks(self._stopping, lambda event: self._handler(event), self._on_end)
        self._runners = build_runners(self._parts, hooks)
        self._started = False

    @property
    def state(self) -> RelayState:
        """Created, running, stopping or stopped."""
        if not self._started:
            return RelayState.stopped if self._stopping.is_set() else RelayState.created
        if not any(runner.thread.is_alive() for runner in self._runners):
            return RelayState.stopped
        return RelayState.stopping if self._stopping.is_set() else RelayState.running

    @property
    def is_leader(self) -> bool:
        """Whether this instance owns any shard at the moment."""
        return bool(self.leader_ids)

    @property
    def leader_id(self) -> UUID | None:
        """The id of this instance's term on the first shard that it owns; None where it owns none."""
        return next(iter(self.leader_ids.values()), None)

    @property
    def leader_ids(self) -> dict[int, UUID]:
        """The id of the term on each shard that this instance owns."""
        held = ((index, runner.loop.progress.leader_id) for index, runner in enumerate(self._runners))
        return {index: leader_id for index, leader_id in held if leader_id is not None}

    @property
    def published(self) -> int:
        """How many records this instance has published."""
        return sum(runner.loop.progress.published for runner in self._runners)

    @property
    def progress(self) -> Sequence[RelayProgress | WorkersProgress]:
        """What each shard, or the workers of `topic-lock`, have done so far."""
        return [runner.loop.progress for runner in self._runners]

    @property
    def in_flight(self) -> int:
        """How many rows are on their way to the broker at the moment."""
        return len(self._in_flight())

    @property
    def in_flight_keys(self) -> frozenset[tuple[str, bytes | None]]:
        """The topics and keys of these rows."""
        return frozenset((row.topic, row.key) for row in self._in_flight())

    @property
    def last_error(self) -> str:
        """The error that a shard waits for at the moment; empty if all work."""
        return next(
            (runner.loop.progress.last_error for runner in self._runners if runner.loop.progress.last_error), ""
        )

    def on_event(self, handler: Callable[[RelayEvent], None]) -> None:
        """Sets the handler of every event of `inorder.relay.events`; allowed before `start` only.

        It is called on the shard's thread, and the shard waits for it. What it raises is logged.
        """
        with self._lock:
            if self._started:
                raise ConfigurationError(
                    "The relay has been started; a handler set now would have missed events.",
                    hint="Call on_event before start, or before the with block.",
                )
            self._handler = handler

    def start(self) -> None:
        """Starts the threads. Calling it again changes nothing; a relay that was stopped does not start again."""
        with self._lock:
            if self._started:
                return
            if self._stopping.is_set():
                raise ConfigurationError("The relay was stopped.", hint="Create a new Relay.")
            self._started = True
            for runner in self._runners:
                runner.thread.start()
            if self._parts.relay.retention_days is not None:
                threading.Thread(target=self._keep_days, name="inorder-retention", daemon=True).start()

    def stop(self, timeout: float | None = None) -> bool:
        """Finishes the batches in progress and purges what is published; returns whether all ended in time.

        May be called twice.
        """
        self._stopping.set()
        return self._join(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the relay has ended, and returns whether it has; raises the error that ended it."""
        ended = self._join(timeout)
        if self._failure is not None:
            raise self._failure
        return ended

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _in_flight(self) -> list[OutboxRow]:
        return [row for runner in self._runners for row in runner.loop.in_flight()]

    def _join(self, timeout: float | None) -> bool:
        if not self._started:
            return self._stopping.is_set()
        deadline = None if timeout is None else time.monotonic() + timeout
        for runner in self._runners:
            runner.thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(runner.thread.is_alive() for runner in self._runners)

    def _on_end(self, failure: BaseException | None) -> None:
        if failure is None:
            return
        self._failure = self._failure or failure
        self._stopping.set()
        # `wait` raises it too, but an application need not call that: a relay must not end unnoticed.
        code = failure.code if isinstance(failure, InorderError) else ""
        unexpected = None if code else failure
        log.error("relay.ended", extra={"code": code, "error": str(failure)}, exc_info=unexpected)

    def _keep_days(self) -> None:
        """Drops old days of published rows, at the start and every hour."""
        from inorder.outbox.stores.retention import Retention

        relay = self._parts.relay
        url = self._parts.require_postgres_url("Kept rows")
        retention = Retention(url, relay.table, retention_days=relay.retention_days or 1)
        while not self._stopping.is_set():
            try:
                for name in retention.keep(retention.today()):
                    log.info("relay.day_dropped", extra={"partition": name})
            except InorderError as error:
                log.warning("relay.retention_failed", extra={"error": str(error)})
            self._stopping.wait(_KEEP_SECONDS)
        retention.close()
