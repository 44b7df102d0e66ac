"""What waits, who owns it, and what was set aside."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from inorder.settings import Settings
from inorder.stores.backlog import backlog
from inorder.stores.exceeded import Action, ExceededRow, Filter
from inorder.stores.opening import open_database
from inorder.wiring.databases import exceeded_store
from inorder.wiring.leases import lease_holders
from inorder.wiring.polling import polling_status
from inorder.wiring.polling_breakers import told_breakers
from inorder.wiring.topics import topics_status


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
    """Rows that used up their attempts, oldest first; `wanted` are the fields of `Filter`."""
    with closing(exceeded_store(settings, "inorder exceeded")) as store:
        return store.rows(Filter(**wanted))


def settle_exceeded(settings: Settings, action: Action, reason: str, **wanted: Any) -> list[ExceededRow]:
    """Retries or discards such rows, all or none, and notes the reason; returns them."""
    with closing(exceeded_store(settings, "inorder exceeded")) as store:
        return store.settle(Filter(**wanted), action, reason)
