"""One shard of the relay: a loop with its own connections, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from inorder.database.database import dialect_of, open_database
from inorder.kafka.shard_log import Delivered, Delivery, ShardLog
from inorder.model.errors import ConfigurationError
from inorder.model.outbox_row import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import layout
from inorder.relay.breaker import BreakerOptions
from inorder.relay.drain import DrainStrategy
from inorder.relay.events import RelayEvent
from inorder.relay.leadership.lease import Lease
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.marker import MarkerCodec
from inorder.relay.options import LoopOptions, Pace, Policy
from inorder.relay.polling import PollingLoop, PollingOptions, PollingTables
from inorder.relay.reshard import confirm
from inorder.relay.stores.opening import (
    can_wake,
    exceeded_store,
    marker_codec,
    outbox_store,
    polling_store,
    scanned_store,
    setup_of,
    shard_log,
    unfenced_log,
)
from inorder.relay.stores.outbox_store import PollingSleeper
from inorder.relay.stores.ports import Sleeper, TopicBacklog
from inorder.relay.stores.registry import SqlRegistry
from inorder.relay.stores.topic_lock import LAYOUT, SqlTopicStore
from inorder.relay.topic_lock import IdlePause, TopicRelay, TopicWorker
from inorder.relay.topic_lock_batch import TopicLockOptions, Topics, oldest_wait
from inorder.settings import Settings
from inorder.settings.relay import Topics as NamedTopics
from inorder.settings.servers import Property


class ShardRunner:
    """Runs the loop of one shard; `on_end` is told why it ended."""

    def __init__(
        self,
        settings: Settings,
        index: int,
        lease: Lease,
        *,
        stop: threading.Event,
        on_event: Callable[[RelayEvent], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        setup = setup_of(settings)
        self._store = outbox_store(settings, Shard(index, setup.shards))
        self._exceeded = exceeded_store(settings, "inorder relay (exceeded)")
        self._registry = SqlRegistry(
            open_database(settings.database.require_url(), "inorder relay (registry)"), settings.relay.table
        )
        self._log = shard_log(settings, setup, index, lease.holds)
        self._on_end = on_end
        self.loop = RelayLoop(
            self._strategy(settings),
            self._exceeded,
            self._log,
            lease,
            LoopOptions(
                stop=stop,
                shard_index=index,
                max_attempts=settings.relay.max_attempts,
                policy=policy_of(settings),
                confirm=partial(confirm, self._registry, setup),
                confirms_often=settings.relay.delivery == "at-least-once",
                on_event=on_event,
                pace=pace_of(settings),
                markers=marker_codec(settings, setup),
            ),
        )
        self.thread = threading.Thread(target=self._run, name=f"inorder-relay-{index}", daemon=True)

    def _strategy(self, settings: Settings) -> DrainStrategy | MarkPurgeStrategy:
        relay = settings.relay
        match relay.strategy:
            case "drain":
                return DrainStrategy(self._store, relay.batch_size, relay.shards)
            case "mark-purge":
                return MarkPurgeStrategy(self._store, relay.batch_size, relay.in_flight_limit)
            case "topic-lock" | "polling":
                raise ConfigurationError(f"relay.strategy = {relay.strategy!r} has no shards.")

    def _run(self) -> None:
        run_to_the_end(self.loop.run, [self._store, self._exceeded, self._registry, self._log], self._on_end)


class Closing(Protocol):
    """Something to be given back."""

    def close(self) -> None: ...


def run_to_the_end(
    run: Callable[[], None], parts: Sequence[Closing], on_end: Callable[[BaseException | None], None]
) -> None:
    """Runs a loop, closes what it used, and tells why it ended."""
    failure: BaseException | None = None
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        failure = error
    finally:
        for part in parts:
            part.close()
    on_end(failure)


def policy_of(settings: Settings) -> Callable[[str], Policy]:
    """What happens to a record whose attempts are used up, by its topic."""
    return lambda topic: settings.topic(topic).on_exceeded or settings.relay.on_exceeded


def pace_of(settings: Settings) -> Pace:
    """How long the loop waits, and for what, by the settings."""
    relay, usual = settings.relay, Pace()
    marks, is_timed = relay.strategy == "mark-purge", relay.leadership in ("database", "redis")
    return Pace(
        lease=relay.lease.race_interval_ms / 1000 if is_timed else usual.lease,
        check=relay.lease.check_interval_ms / 1000 if is_timed else usual.check,
        brief_poll=relay.mark_back_off_ms / 1000 if marks else usual.brief_poll,
        # Where nobody can wake us, a long poll is all the rest there is.
        longest_brief_poll=usual.longest_brief_poll if can_wake(settings) else usual.poll,
        back_off=relay.io_back_off_ms / 1000,
        queue=relay.queue_timeout_seconds,
        # Several loops sleep on one lock; when its holder dies, the others notice only by looking.
        asleep=usual.asleep if relay.shards == 1 else 4 * usual.poll,
    )


# The strategy `polling`: one loop with its own connections and producer, on a thread of its own.

log = logging.getLogger("inorder.relay")


class PollingRunner:
    """Runs the loop of one instance; `on_end` is told why it ended."""

    def __init__(
        self,
        settings: Settings,
        lease: Lease,
        *,
        stop: threading.Event,
        on_event: Callable[[RelayEvent], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        setup, url = setup_of(settings), settings.database.require_url()
        self._tables = PollingTables(
            scanned_store(settings), outbox_store(settings, Shard()), polling_store(settings, "inorder relay (polling)")
        )
        self._registry = SqlRegistry(open_database(url, "inorder relay (registry)"), settings.relay.table)
        is_on = settings.relay.polling.is_publishing_on
        self._log: ShardLog = shard_log(settings, setup, 0, lease.holds) if is_on else Unsent()
        self._on_end = on_end
        self.loop = PollingLoop(
            self._tables,
            self._log,
            lease,
            replace(
                polling_options(settings),
                stop=stop,
                confirm=partial(confirm, self._registry, setup),
                confirms_often=settings.relay.delivery == "at-least-once",
                on_event=on_event,
                pace=pace_of(settings),
                markers=marker_codec(settings, setup) if is_on else MarkerCodec(),
            ),
            lease_in_database=settings.relay.leadership == "database",
        )
        self.thread = threading.Thread(target=self._run, name="inorder-relay-polling", daemon=True)

    def _run(self) -> None:
        tables = self._tables
        parts: list[Closing] = [tables.reader, tables.primary, tables.store, self._registry, self._log]
        run_to_the_end(self.loop.run, parts, self._on_end)


class Unsent:
    """A log that sends nothing and says that all has arrived: `relay.polling.is_publishing_on = false`."""

    def take_over(self) -> None:
        """Says so, loudly, in each term."""
        log.warning("relay.publishing_is_off: events are passed over and not published; relay.polling.is_publishing_on")

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
        """Drops the rows."""
        log.warning("relay.not_published", extra={"rows": len(rows)})
        return Delivered()

    def close(self) -> None:
        """Nothing to close."""


def polling_options(settings: Settings) -> PollingOptions:
    """How the loop works, by the settings."""
    polling = settings.relay.polling
    return PollingOptions(
        batch_size=settings.relay.batch_size,
        missing_batch_size=polling.missing_batch_size,
        keep_order=polling.keep_order,
        queue_wait=polling.queue_wait_ms / 1000,
        missing_wait=polling.missing_wait_ms / 1000,
        missing_max_retries=polling.missing_max_retries,
        broker_max_retries=polling.broker_max_retries,
        redelivery_delay=polling.redelivery_delay_ms / 1000,
        policy=policy_of(settings),
        breaker=BreakerOptions(
            polling.breaker.is_enabled,
            polling.breaker.threshold,
            polling.breaker.open_seconds,
            polling.breaker.half_open_attempts,
        ),
    )


def polling_status(settings: Settings) -> dict[str, Any]:
    """What `inorder relay status` tells of the strategy."""
    with closing(polling_store(settings, "inorder status")) as store:
        state = store.state()
    age = (datetime.now(UTC) - state.oldest_missing).total_seconds() if state.oldest_missing else 0.0
    return {
        "waiting": state.behind + state.missing,
        "oldest_seconds": round(age, 3),
        "offset": state.offset,
        "newest_id": state.newest_id,
        "behind": state.behind,
        "missing": state.missing,
        "exceeded": state.exceeded,
    }


# The strategy `topic-lock`: workers with their own connections and producers, on threads of their own.

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
        self._on_end = on_end
        self._options = _options(settings, stop, on_event)
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
            self._options,
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


def topic_store(settings: Settings, application_name: str) -> SqlTopicStore:
    """Messages and lock rows of the settings."""
    database = open_database(settings.database.require_url(), application_name)
    return SqlTopicStore(database, settings.relay.table, stale_seconds=settings.relay.topic_lock.lock_seconds)


def topic_states(settings: Settings) -> list[TopicBacklog]:
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


def _shown(state: TopicBacklog, wait: float) -> dict[str, Any]:
    fields = asdict(state) | {"oldest_seconds": wait}
    del fields["oldest"]
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


def _rest(settings: Settings, stop: threading.Event) -> IdlePause:
    url, idle = settings.database.require_url(), settings.relay.topic_lock.idle_ms / 1000
    if not layout(LAYOUT, dialect_of(url)).wakes_us:
        return IdlePause(PollingSleeper(), stop=stop, idle_seconds=idle)
    sleeper = _postgres_sleeper(url, settings.relay.table)
    return IdlePause(sleeper, stop=stop, idle_seconds=idle, brief_seconds=min(idle, BRIEF_SECONDS))


def _postgres_sleeper(url: str, table: str) -> Sleeper:
    # Imported here, as every driver is.
    from inorder.relay.stores.postgres_outbox import PostgresSleeper

    return PostgresSleeper(url, table)


def _options(settings: Settings, stop: threading.Event, on_event: Callable[[RelayEvent], None]) -> TopicLockOptions:
    relay = settings.relay
    return TopicLockOptions(
        stop=stop,
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
