"""What an operator asks of a relay: what waits, who owns it, which rows are exceeded, and how a running one is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Protocol

from prometheus_client.samples import Sample

from inorder.database.database import Database
from inorder.observe.metrics import OutboxReading, RelayReading, TopicReading, read_served
from inorder.outbox.stores.table import backlog, first_topics
from inorder.relay.loop import RelayProgress
from inorder.relay.parts import RelayParts
from inorder.relay.polling import PollingProgress
from inorder.relay.service import RelayState
from inorder.relay.stores.exceeded import Action, ExceededFilter, ExceededGroup, ExceededRow, Whereabouts
from inorder.relay.stores.ports import MissingEvent, TopicBacklog
from inorder.relay.topic_lock import WorkersProgress
from inorder.relay.topic_lock_batch import oldest_wait
from inorder.topics.pauses import RELAY_KINDS, SqlPauses


class RelayAdmin:
    """The outbox of a relay on one connection, whether a relay runs or not."""

    def __init__(self, parts: RelayParts, database: Database) -> None:
        self._parts = parts
        self._database = database

    def status(self, *, asks_kafka: bool = True) -> dict[str, Any]:
        """What waits in the outbox, since when, and which instance owns each shard or topic, where that is known.

        `phantoms` are ids that were published and whose rows the database lost when it last went back in time; empty
        if it never did, None where the broker does not answer. Without `asks_kafka` they are None at once, and so are
        owners that only the broker knows.
        """
        relay = self._parts.relay
        fields = {"group": relay.group, "table": relay.table, "strategy": relay.strategy}
        if relay.strategy == "topic-lock":
            return {**fields, **self.outbox_state()}
        state = self.outbox_state()
        holders, instances = self._parts.ownership(self._database, asks_kafka=asks_kafka)
        if relay.strategy == "polling":
            state["breakers"] = read_breakers(self._parts.settings.health.address, relay.group)
        return {
            **fields,
            "shards": relay.shards,
            **state,
            "owner": holders[0][0],
            "term": holders[0][1],
            "owners": [owner for owner, _ in holders],
            "terms": [term for _, term in holders],
            "instances": instances,
            "phantoms": self._parts.read_phantoms() if asks_kafka else None,
        }

    def outbox_state(self) -> dict[str, Any]:
        """What waits in the outbox and since when, from the database alone."""
        match self._parts.relay.strategy:
            case "topic-lock":
                return self._topic_lock_state()
            case "polling":
                return self._polling_state()
        relay = self._parts.relay
        waiting = backlog(self._database, relay.table, relay.layout)
        return {"waiting": waiting.rows, "oldest_seconds": _age(waiting.oldest)}

    def outbox_reading(self) -> OutboxReading:
        """The same as numbers, for metrics, with what is exceeded and the keys that wait for it."""
        sizes = self._parts.exceeded_store(self._database).sizes()
        parked = sum(keys for topic, keys in sizes.keys.items() if self._parts.policy(topic) == "park")
        paused = sum(row.kind in RELAY_KINDS for row in SqlPauses(self._database).read().rows)
        state = {**self.outbox_state(), "exceeded": sizes.rows, "parked_keys": parked, "paused": paused}
        numbers = {name: float(value) for name, value in state.items() if isinstance(value, int | float)}
        topics = tuple(
            TopicReading(each["topic"], each["messages"], each["oldest_seconds"]) for each in state.get("topics", ())
        )
        return OutboxReading(0.0, numbers, topics)

    def exceeded_rows(self, **wanted: Any) -> list[ExceededRow]:
        """Rows that used up their attempts, oldest first; `wanted` are the fields of `ExceededFilter`."""
        return self._parts.exceeded_store(self._database).rows(ExceededFilter(**wanted))

    def exceeded_page(self, above: int, most: int, **wanted: Any) -> list[ExceededRow]:
        """The first of them above an id, for lists of any length; their values may be left out."""
        return self._parts.exceeded_store(self._database).page(ExceededFilter(**wanted), above, most)

    def exceeded_groups(self, **wanted: Any) -> list[ExceededGroup]:
        """How many there are, by code and topic."""
        return self._parts.exceeded_store(self._database).groups(ExceededFilter(**wanted))

    def count_exceeded(self, most: int, **wanted: Any) -> int:
        """How many there are, counted up to a bound."""
        return self._parts.exceeded_store(self._database).count(ExceededFilter(**wanted), most)

    def missing_page(self, above: int, most: int) -> list[MissingEvent]:
        """Ids above one that are looked for, or retried; only the strategy `polling` has any."""
        if self._parts.relay.strategy != "polling":
            return []
        return self._parts.polling_store(self._database).missing(above, most)

    def settle_exceeded(self, action: Action, reason: str, **wanted: Any) -> list[ExceededRow]:
        """Retries or discards such rows, all or none, and keeps the reason; returns them."""
        return self._parts.exceeded_store(self._database).settle(ExceededFilter(**wanted), action, reason)

    def retried_exceeded(self, ids: Sequence[int]) -> dict[int, Whereabouts]:
        """Where rows are that were put back under their ids, as far as that is known."""
        return self._parts.exceeded_store(self._database).whereabouts(ids)

    def topic_states(self) -> list[TopicBacklog]:
        """What waits for each topic, and which worker has it; of the strategy `topic-lock`."""
        store = self._parts.topic_store(self._database)
        store.check()
        return store.pending()

    def waiting_topics(self) -> list[str]:
        """The topics of the first rows that wait."""
        relay = self._parts.relay
        # Published rows are purged, but `polling` leaves them where they are.
        polls = relay.strategy == "polling"
        above = self._parts.polling_store(self._database).state().offset if polls else -1
        return first_topics(self._database, relay.table, relay.layout, above)

    def _polling_state(self) -> dict[str, Any]:
        state = self._parts.polling_store(self._database).state()
        return {
            "waiting": state.behind + state.missing,
            "oldest_seconds": _age(state.oldest_missing),
            "offset": state.offset,
            "newest_id": state.newest_id,
            "behind": state.behind,
            "missing": state.missing,
            "exceeded": state.exceeded,
        }

    def _topic_lock_state(self) -> dict[str, Any]:
        states, now = self.topic_states(), datetime.now(UTC)
        waits = [round(oldest_wait(state, now), 3) for state in states]
        return {
            "workers": self._parts.relay.topic_lock.workers,
            "waiting": sum(state.messages for state in states),
            "oldest_seconds": max(waits, default=0.0),
            "topics": [_topic_fields(state, wait) for state, wait in zip(states, waits, strict=True)],
        }


@contextmanager
def open_admin(parts: RelayParts) -> Iterator[RelayAdmin]:
    """For one question now and then: its connection is not kept."""
    with closing(parts.open_database("inorder status")) as database:
        yield RelayAdmin(parts, database)


def _age(oldest: datetime | None) -> float:
    return round((datetime.now(UTC) - oldest).total_seconds(), 3) if oldest else 0.0


def _topic_fields(state: TopicBacklog, wait: float) -> dict[str, Any]:
    fields = asdict(state) | {"oldest_seconds": wait}
    del fields["oldest"]
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


# A running relay, from memory: its health and its metrics.


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
    """Why the relay does not work, in a sentence; empty while it works, leader or not."""
    if not reading.is_running:
        return "The relay does not run."
    if resting := [daemon for daemon, state in reading.breakers.items() if state == "open"]:
        return f"The circuit breaker of {' and '.join(resting)} is open. {reading.last_error}".strip()
    return reading.last_error


BREAKER_METRIC = "inorder_relay_breaker_state"


def read_breakers(address: tuple[str, int] | None, group: str) -> dict[str, str] | None:
    """The state of each breaker by its daemon; None where `health.listen` is not set or no relay answers there."""
    served = read_served(address)
    return None if served is None else breakers_in(served, group)


def breakers_in(samples: Iterable[Sample], group: str) -> dict[str, str]:
    """The states that a page of metrics has for a group."""
    return {
        sample.labels["daemon"]: sample.labels["state"]
        for sample in samples
        if sample.name == BREAKER_METRIC and sample.value and sample.labels["group"] == group
    }
