"""The strategy `polling`: one loop with its own connections and producer, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from inorder.model.shard import Shard
from inorder.ports.lease import Lease
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.shard_log import ShardLog
from inorder.relay.breaker import BreakerOptions
from inorder.relay.events import RelayEvent
from inorder.relay.polling import PollingLoop
from inorder.relay.polling_options import PollingOptions, PollingTables
from inorder.relay.reshard import confirm
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.wiring.databases import outbox_store, polling_store, scanned_store
from inorder.wiring.logs import setup_of, shard_log
from inorder.wiring.shards import Closing, pace_of, policy_of, run_to_the_end

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
            stop=stop,
            options=polling_options(settings),
            confirm=partial(confirm, self._registry, setup),
            confirms_often=settings.relay.delivery == "at-least-once",
            lease_in_database=settings.relay.leadership == "database",
            on_event=on_event,
            pace=pace_of(settings),
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

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:  # noqa: ARG002 - the port's signature
        """Drops the rows."""
        log.warning("relay.not_published", extra={"rows": len(rows)})

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
