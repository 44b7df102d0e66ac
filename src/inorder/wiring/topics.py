"""The strategy `topic-lock`: workers with their own connections and producers, on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from inorder.outbox.layouts import layout
from inorder.ports.outbox_store import Sleeper
from inorder.ports.shard_log import ShardLog
from inorder.ports.topic_store import TopicState
from inorder.relay.events import RelayEvent
from inorder.relay.pace import Pace
from inorder.relay.reshard import confirm
from inorder.relay.topic_lock import TopicLockOptions, TopicWorker
from inorder.relay.topic_lock_relay import TopicRelay
from inorder.relay.topic_lock_rest import Rest
from inorder.relay.topic_lock_rules import Topics, oldest_wait
from inorder.settings import Settings
from inorder.settings.kafka import Property
from inorder.settings.relay import Topics as NamedTopics
from inorder.stores.no_wake_up import NoWakeUp
from inorder.stores.opening import dialect_of, open_database
from inorder.stores.registry import SqlRegistry
from inorder.stores.topics import LAYOUT, SqlTopicStore
from inorder.wiring.databases import exceeded_store
from inorder.wiring.logs import setup_of, unfenced_log
from inorder.wiring.shards import policy_of, run_to_the_end

BRIEF_SECONDS = 0.02
"""The pause while a publisher is about to commit, so that nobody could wake us."""


class TopicRunner:
    """Runs the workers of one instance; `on_end` is told why they ended."""

    def __init__(
        self,
        settings: Settings,
        *,
        stop: threading.Event,
        on_event: Callable[[RelayEvent], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._on_end = on_end
        self._options = _options(settings, on_event)
        self._rest = _rest(settings, stop)
        self.loop = TopicRelay(
            self._new_worker, workers=settings.relay.topic_lock.workers, stop=stop, prepare=self._prepare
        )
        self.thread = threading.Thread(target=self._run, name="inorder-relay-topics", daemon=True)

    def _new_worker(self) -> TopicWorker:
        return TopicWorker(
            topic_store(self._settings, "inorder relay (topics)"),
            exceeded_store(self._settings, "inorder relay (exceeded)"),
            TopicLogs(self._settings),
            self._rest,
            stop=self._stop,
            options=self._options,
        )

    def _prepare(self) -> None:
        """Raises unless the tables are there, and registered for this strategy."""
        with closing(topic_store(self._settings, "inorder relay (check)")) as store:
            store.check()
        url = self._settings.database.require_url()
        registry = SqlRegistry(open_database(url, "inorder relay (registry)"), self._settings.relay.table)
        with closing(registry):
            confirm(registry, setup_of(self._settings))

    def _run(self) -> None:
        run_to_the_end(self.loop.run, [self._rest], self._on_end)


class TopicLogs:
    """The logs of one worker: topics whose producer settings are alike share a producer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._logs: list[tuple[dict[str, Property], ShardLog]] = []

    def __call__(self, topic: str) -> ShardLog:
        """The log of a topic."""
        wanted = {**self._settings.kafka.properties, **self._settings.topic(topic).kafka.properties}
        for properties, log in self._logs:
            if properties == wanted:
                return log
        log = unfenced_log(self._settings, wanted)
        self._logs.append((wanted, log))
        return log


class Unwoken(NoWakeUp):
    """A sleeper where publishers cannot wake anybody."""

    def close(self) -> None:
        """Nothing to give back."""


def topic_store(settings: Settings, application_name: str) -> SqlTopicStore:
    """Messages and lock rows of the settings."""
    database = open_database(settings.database.require_url(), application_name)
    return SqlTopicStore(database, settings.relay.table, stale_seconds=settings.relay.topic_lock.lock_seconds)


def topic_states(settings: Settings) -> list[TopicState]:
    """What waits for each topic, and who works on it."""
    with closing(topic_store(settings, "inorder status")) as store:
        store.check()
        return store.pending()


def topics_status(settings: Settings) -> dict[str, Any]:
    """What `inorder relay status` tells of the strategy."""
    states, now = topic_states(settings), datetime.now(UTC)
    waits = [round(oldest_wait(state, now), 3) for state in states]
    return {
        "workers": settings.relay.topic_lock.workers,
        "waiting": sum(state.messages for state in states),
        "oldest_seconds": max(waits, default=0.0),
        "topics": [_shown(state, wait) for state, wait in zip(states, waits, strict=True)],
    }


def _shown(state: TopicState, wait: float) -> dict[str, Any]:
    fields = asdict(state) | {"oldest_seconds": wait}
    del fields["oldest"]
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


def _rest(settings: Settings, stop: threading.Event) -> Rest:
    url, idle = settings.database.require_url(), settings.relay.topic_lock.idle_ms / 1000
    if not layout(LAYOUT, dialect_of(url)).wakes_us:
        return Rest(Unwoken(), stop=stop, idle_seconds=idle)
    sleeper = _postgres_sleeper(url, settings.relay.table)
    return Rest(sleeper, stop=stop, idle_seconds=idle, brief_seconds=min(idle, BRIEF_SECONDS))


def _postgres_sleeper(url: str, table: str) -> Sleeper:
    # Imported here, as every driver is.
    from inorder.stores.postgres.sleeper import PostgresSleeper

    return PostgresSleeper(url, table)


def _options(settings: Settings, on_event: Callable[[RelayEvent], None]) -> TopicLockOptions:
    relay = settings.relay
    return TopicLockOptions(
        batch_size=relay.batch_size,
        delete_group_size=relay.topic_lock.delete_group_size,
        lock_seconds=relay.topic_lock.lock_seconds,
        max_attempts=relay.max_attempts,
        compact_topics=_named(relay.topic_lock.compact_topics),
        log_topics=_named(relay.topic_lock.log_topics),
        policy=policy_of(settings),
        on_event=on_event,
        pace=Pace(back_off=relay.io_back_off_ms / 1000, queue=relay.queue_timeout_seconds),
    )


def _named(topics: NamedTopics) -> Topics:
    return "all" if topics == "all" else frozenset(topics)
