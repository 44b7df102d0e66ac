"""What waits, who owns it, and what was set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from inorder.database.database import open_database
from inorder.observe.endpoint import READ_SECONDS, PeriodicReader
from inorder.observe.metrics import OutboxReading, RelayReading, TopicReading
from inorder.outbox.stores.table import backlog
from inorder.relay.loop import RelayProgress
from inorder.relay.polling import PollingProgress
from inorder.relay.runners import polling_status, topics_status
from inorder.relay.service import RelayState
from inorder.relay.stores.exceeded import Action, ExceededFilter, ExceededRow
from inorder.relay.stores.opening import exceeded_store, lease_holders
from inorder.relay.topic_lock import WorkersProgress
from inorder.settings import Settings


def relay_status(settings: Settings) -> dict[str, Any]:
    """What waits in the outbox, since when, and which instance owns each shard or topic, where that is told."""
    relay = settings.relay
    found = {"group": relay.group, "table": relay.table, "strategy": relay.strategy}
    if relay.strategy == "topic-lock":
        return {**found, **outbox_state(settings)}
    state, holders = outbox_state(settings), lease_holders(settings)
    if relay.strategy == "polling":
        state["breakers"] = told_breakers(settings)
    return {
        **found,
        "shards": relay.shards,
        **state,
        "owner": holders[0][0],
        "term": holders[0][1],
        "owners": [owner for owner, _ in holders],
    }


def outbox_state(settings: Settings) -> dict[str, Any]:
    """What waits in the outbox and since when, as the database tells it."""
    relay = settings.relay
    if relay.strategy == "topic-lock":
        return topics_status(settings)
    if relay.strategy == "polling":
        return polling_status(settings)
    with closing(open_database(settings.database.require_url(), "inorder status")) as database:
        waiting = backlog(database, relay.table, relay.layout)
    age = (datetime.now(UTC) - waiting.oldest).total_seconds() if waiting.oldest else 0.0
    return {"waiting": waiting.rows, "oldest_seconds": round(age, 3)}


def exceeded_rows(settings: Settings, **wanted: Any) -> list[ExceededRow]:
    """Rows that used up their attempts, oldest first; `wanted` are the fields of `ExceededFilter`."""
    with closing(exceeded_store(settings, "inorder exceeded")) as store:
        return store.rows(ExceededFilter(**wanted))


def settle_exceeded(settings: Settings, action: Action, reason: str, **wanted: Any) -> list[ExceededRow]:
    """Retries or discards such rows, all or none, and notes the reason; returns them."""
    with closing(exceeded_store(settings, "inorder exceeded")) as store:
        return store.settle(ExceededFilter(**wanted), action, reason)


# How a running relay is: what it tells whoever asks for its health or its metrics.


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
    def progress(self) -> Sequence[RelayProgress | WorkersProgress]: ...


def relay_reading(group: str, relay: MeasuredRelay) -> RelayReading:
    """What a relay has done and how it is, from memory."""
    parts = relay.progress
    published = sum(part.published for part in parts)
    return RelayReading(
        group=group,
        is_running=relay.state is RelayState.running,
        is_leader=relay.is_leader,
        published=published,
        processed=sum(part.processed if isinstance(part, WorkersProgress) else part.published for part in parts),
        exceeded=sum(part.exceeded for part in parts),
        terms=sum(part.terms for part in parts if isinstance(part, RelayProgress)),
        in_flight=relay.in_flight,
        last_error=relay.last_error,
        breakers=breakers_of(parts),
    )


def breakers_of(parts: Sequence[RelayProgress | WorkersProgress]) -> Mapping[str, str]:
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


class OutboxWatch(PeriodicReader[OutboxReading]):
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


# The breakers of a relay that runs elsewhere on this machine, as it tells them itself.
#
# A breaker is open when the database cannot be reached, so it cannot be written down there. The relay tells it where it
# tells its health; another process can only ask.

BREAKER_METRIC = "inorder_relay_breaker_state"
ASK_SECONDS = 1.0


def told_breakers(settings: Settings) -> dict[str, str] | None:
    """The state of each breaker by its daemon; None where `health.listen` is not set or nobody answers there."""
    address = settings.health.address
    if address is None:
        return None
    host, port = address
    place = f"[{host}]" if ":" in host else host
    try:
        with urlopen(f"http://{place}:{port}/metrics", timeout=ASK_SECONDS) as answer:
            return breakers_in(answer.read().decode(), settings.relay.group)
    except (URLError, TimeoutError, ConnectionError):
        return None


def breakers_in(metrics: str, group: str) -> dict[str, str]:
    """The states that a page of metrics tells for a group."""
    families = text_string_to_metric_families(metrics)
    samples = (sample for family in families for sample in family.samples if sample.name == BREAKER_METRIC)
    return {
        sample.labels["daemon"]: sample.labels["state"]
        for sample in samples
        if sample.value and sample.labels["group"] == group
    }
