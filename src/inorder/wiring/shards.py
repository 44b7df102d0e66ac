"""One shard of the relay: a loop with its own connections, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from inorder.model.errors import ConfigurationError
from inorder.model.shard import Shard
from inorder.ports.lease import Lease
from inorder.relay.drain import DrainStrategy
from inorder.relay.events import RelayEvent
from inorder.relay.loop import RelayLoop
from inorder.relay.mark_purge import MarkPurgeStrategy
from inorder.relay.pace import Pace
from inorder.relay.parking import Policy
from inorder.relay.reshard import confirm
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.wiring.databases import can_wake, exceeded_store, outbox_store
from inorder.wiring.logs import setup_of, shard_log


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
            stop=stop,
            shard_index=index,
            max_attempts=settings.relay.max_attempts,
            policy=policy_of(settings),
            confirm=partial(confirm, self._registry, setup),
            confirms_often=settings.relay.delivery == "at-least-once",
            on_event=on_event,
            pace=pace_of(settings),
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
