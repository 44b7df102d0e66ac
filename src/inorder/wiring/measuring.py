"""How a running relay is: what it tells whoever asks for its health or its metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from inorder.model.errors import InorderError
from inorder.observe.metrics import OutboxReading, RelayReading, TopicReading
from inorder.relay.owning import Progress
from inorder.relay.polling import PollingProgress
from inorder.relay.topic_lock_relay import Summary
from inorder.settings import Settings
from inorder.wiring.relay import RelayState
from inorder.wiring.relay_state import outbox_state

log = logging.getLogger("inorder.health")

READ_SECONDS = 10.0
"""Between questions to the database; what waits is counted, which is work."""


class MeasuredRelay(Protocol):
    """What there is to know of a relay."""

    @property
    def state(self) -> RelayState: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def last_error(self) -> str: ...

    @property
    def progress(self) -> Sequence[Progress | Summary]: ...


def relay_reading(group: str, relay: MeasuredRelay) -> RelayReading:
    """What a relay has done and how it is, from memory."""
    parts = relay.progress
    published = sum(part.published for part in parts)
    return RelayReading(
        group=group,
        is_running=relay.state is RelayState.running,
        is_leader=relay.is_leader,
        published=published,
        processed=sum(part.processed if isinstance(part, Summary) else part.published for part in parts),
        exceeded=sum(part.exceeded for part in parts),
        terms=sum(part.terms for part in parts if isinstance(part, Progress)),
        in_flight=relay.in_flight,
        last_error=relay.last_error,
        breakers=breakers_of(parts),
    )


def breakers_of(parts: Sequence[Progress | Summary]) -> Mapping[str, str]:
    """The state of each breaker, by the name of its daemon; only the strategy `polling` has any."""
    return {
        daemon: state for part in parts if isinstance(part, PollingProgress) for daemon, state in part.breakers.items()
    }


def trouble_of(reading: RelayReading) -> str:
    """Why the relay does not work, in a sentence; nothing while it does, leader or not."""
    if not reading.is_running:
        return "The relay does not run."
    if resting := [daemon for daemon, state in reading.breakers.items() if state == "open"]:
        return f"The circuit breaker of {' and '.join(resting)} is open. {reading.last_error}".strip()
    return reading.last_error


class OutboxWatch:
    """Asks the database now and then what waits, on a thread of its own: whoever reads must not wait for it."""

    def __init__(self, settings: Settings, *, seconds: float = READ_SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inorder-outbox-watch", daemon=True)
        self._last: tuple[float, OutboxReading] | None = None

    @property
    def reading(self) -> OutboxReading | None:
        """The last answer, with its age; None before the first."""
        if self._last is None:
            return None
        at, found = self._last
        return OutboxReading(time.monotonic() - at, found.numbers, found.topics)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more; does not wait for an answer that is still to come."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._last = (time.monotonic(), outbox_reading(self._settings))
            except InorderError as error:
                log.info("health.outbox_not_read: %s", error)
            self._stop.wait(self._seconds)


def outbox_reading(settings: Settings) -> OutboxReading:
    """What the database says of the outbox."""
    state = outbox_state(settings)
    numbers = {name: float(value) for name, value in state.items() if isinstance(value, int | float)}
    topics = tuple(
        TopicReading(each["topic"], each["messages"], each["oldest_seconds"]) for each in state.get("topics", ())
    )
    return OutboxReading(0.0, numbers, topics)
