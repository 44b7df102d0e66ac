"""How a running relay is: what it tells whoever asks for its health or its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from inorder.observe.metrics import OutboxReading, RelayReading, TopicReading
from inorder.relay.owning import Progress
from inorder.relay.polling import PollingProgress
from inorder.relay.topic_lock_relay import Summary
from inorder.settings import Settings
from inorder.wiring.relay import RelayState
from inorder.wiring.relay_state import outbox_state
from inorder.wiring.watching import READ_SECONDS, Watch


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


class OutboxWatch(Watch[OutboxReading]):
    """Asks the database what waits."""

    def __init__(self, settings: Settings, *, seconds: float = READ_SECONDS) -> None:
        super().__init__("outbox", lambda: outbox_reading(settings), seconds=seconds)

    @property
    def reading(self) -> OutboxReading | None:
        """The last answer, with its age; None before the first."""
        if self.last is None:
            return None
        age, found = self.last
        return OutboxReading(age, found.numbers, found.topics)


def outbox_reading(settings: Settings) -> OutboxReading:
    """What the database says of the outbox."""
    state = outbox_state(settings)
    numbers = {name: float(value) for name, value in state.items() if isinstance(value, int | float)}
    topics = tuple(
        TopicReading(each["topic"], each["messages"], each["oldest_seconds"]) for each in state.get("topics", ())
    )
    return OutboxReading(0.0, numbers, topics)
