"""Loops on threads of their own: one for each shard, one for `polling`, or the workers of `topic-lock`.

Each loop has its own connections and producer. They are closed on its thread when it ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from inorder.database.database import Closable, dialect_of
from inorder.kafka.shard_log import Delivered, Delivery, ShardLog
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Shard
from inorder.outbox.layouts import layout
from inorder.relay.events import RelayEvent
from inorder.relay.leadership.lease import Lease
from inorder.relay.loop import RelayLoop
from inorder.relay.marker import MarkerCodec
from inorder.relay.options import LoopOptions
from inorder.relay.parts import RelayParts
from inorder.relay.polling import PollingLoop, PollingTables
from inorder.relay.reshard import confirm
from inorder.relay.stores.outbox_store import PollingSleeper
from inorder.relay.stores.topic_lock import LAYOUT
from inorder.relay.topic_lock import IdlePause, TopicRelay, TopicWorker
from inorder.settings.servers import Property

log = logging.getLogger("inorder.relay")

BRIEF_SECONDS = 0.02
"""The pause of `topic-lock` while a publisher is about to commit, so that no wake-up can reach us."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a relay stops its loops, hears their events, and learns why one ended."""

    stop: threading.Event
    on_event: Callable[[RelayEvent], None]
    on_end: Callable[[BaseException | None], None]


class Runner:
    """Runs a loop on a thread, closes what it used, and reports why it ended."""

    def __init__(
        self,
        name: str,
        loop: RelayLoop | PollingLoop | TopicRelay,
        resources: Sequence[Closable],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self.loop = loop
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._resources = resources
        self._on_end = on_end

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with ExitStack() as resources:
                for each in reversed(self._resources):
                    resources.callback(each.close)
                self.loop.run()
        except BaseException as error:  # noqa: BLE001 - raised by `Relay.wait`
            failure = error
        self._on_end(failure)


def build_runners(parts: RelayParts, hooks: Hooks) -> list[Runner]:
    """The loops of one instance, by `relay.strategy`."""
    if parts.relay.strategy == "topic-lock":
        return [_topic_lock_runner(parts, hooks)]
    lease = parts.leases()
    if parts.relay.strategy == "polling":
        return [_polling_runner(parts, lease(0), hooks)]
    return [_shard_runner(parts, index, lease(index), hooks) for index in range(parts.relay.shards)]


def _shard_runner(parts: RelayParts, index: int, lease: Lease, hooks: Hooks) -> Runner:
    relay, setup = parts.relay, parts.setup
    shard = Shard(index, setup.shards)
    store = parts.outbox_store(shard)
    exceeded = parts.exceeded_store(parts.open_database("inorder relay (exceeded)"), shard)
    registry = parts.registry(parts.open_database("inorder relay (registry)"))
    shard_log = parts.shard_log(setup, index, lease.holds)
    loop = RelayLoop(
        parts.strategy(store),
        exceeded,
        shard_log,
        lease,
        LoopOptions(
            stop=hooks.stop,
            shard_index=index,
            max_attempts=relay.max_attempts,
            policy=parts.policy,
            require_server=parts.server_check(),
            confirm=partial(confirm, registry, setup),
            confirms_often=relay.delivery == "at-least-once",
            pause=partial(shard_log.shard_pause, index),
            on_event=hooks.on_event,
            pace=parts.pace(),
            markers=parts.marker_codec(setup),
        ),
    )
    return Runner(f"inorder-relay-{index}", loop, [store, exceeded, registry, shard_log], hooks.on_end)


def _polling_runner(parts: RelayParts, lease: Lease, hooks: Hooks) -> Runner:
    relay, setup = parts.relay, parts.setup
    store = parts.polling_store(parts.open_database("inorder relay (polling)"))
    tables = PollingTables(parts.scanned_store(), parts.outbox_store(Shard()), store)
    registry = parts.registry(parts.open_database("inorder relay (registry)"))
    publishes = relay.polling.is_publishing_on
    shard_log: ShardLog = parts.shard_log(setup, 0, lease.holds) if publishes else DiscardingLog()
    loop = PollingLoop(
        tables,
        shard_log,
        lease,
        replace(
            parts.polling_options(),
            stop=hooks.stop,
            require_server=parts.server_check(),
            confirm=partial(confirm, registry, setup),
            confirms_often=relay.delivery == "at-least-once",
            on_event=hooks.on_event,
            pace=parts.pace(),
            markers=parts.marker_codec(setup) if publishes else MarkerCodec(),
        ),
        lease_in_database=relay.leadership == "database",
    )
    resources: list[Closable] = [tables.reader, tables.primary, tables.store, registry, shard_log]
    return Runner("inorder-relay-polling", loop, resources, hooks.on_end)


class DiscardingLog:
    """A log that sends nothing and reports everything as sent: `relay.polling.is_publishing_on = false`."""

    def take_over(self) -> None:
        """Warns in each term."""
        log.warning("relay.publishing_is_off", extra={"setting": "relay.polling.is_publishing_on"})

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
        """Drops the rows."""
        log.warning("relay.not_published", extra={"rows": len(rows)})
        return Delivered()

    def close(self) -> None:
        """Nothing to close."""


def _topic_lock_runner(parts: RelayParts, hooks: Hooks) -> Runner:
    rest, options = _rest(parts, hooks.stop), parts.topic_lock_options(hooks.stop, hooks.on_event)

    def new_worker() -> TopicWorker:
        return TopicWorker(
            parts.topic_store(parts.open_database("inorder relay (topics)")),
            parts.exceeded_store(parts.open_database("inorder relay (exceeded)")),
            TopicLogs(parts),
            rest,
            options,
        )

    def prepare() -> None:
        """Raises unless the server is suited, and the tables are there and registered for this strategy."""
        parts.server_check()()
        with closing(parts.open_database("inorder relay (registry)")) as database:
            parts.topic_store(database).check()
            confirm(parts.registry(database), parts.setup)

    loop = TopicRelay(new_worker, workers=parts.relay.topic_lock.workers, stop=hooks.stop, prepare=prepare)
    return Runner("inorder-relay-topics", loop, [rest], hooks.on_end)


class TopicLogs:
    """The logs of one worker: topics whose producer settings are the same share a producer."""

    def __init__(self, parts: RelayParts) -> None:
        self._parts = parts
        self._logs: list[tuple[dict[str, Property], ShardLog]] = []

    def __call__(self, topic: str) -> ShardLog:
        """The log of a topic."""
        wanted = self._parts.settings.producer_properties(topic)
        for properties, shard_log in self._logs:
            if properties == wanted:
                return shard_log
        shard_log = self._parts.unfenced_log(wanted)
        self._logs.append((wanted, shard_log))
        return shard_log


def _rest(parts: RelayParts, stop: threading.Event) -> IdlePause:
    url, idle = parts.settings.database.require_url(), parts.relay.topic_lock.idle_ms / 1000
    if not layout(LAYOUT, dialect_of(url)).wakes_us:
        return IdlePause(PollingSleeper(), stop=stop, idle_seconds=idle)
    from inorder.relay.stores.postgres_outbox import PostgresSleeper

    sleeper = PostgresSleeper(url, parts.relay.table)
    return IdlePause(sleeper, stop=stop, idle_seconds=idle, brief_seconds=min(idle, BRIEF_SECONDS))
