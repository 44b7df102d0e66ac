"""Publishing kept rows again."""

from __future__ import annotations

from datetime import datetime

from inorder.relay.stores.opening import postgres_url
from inorder.settings import Settings


def replay_outbox(
    settings: Settings,
    *,
    key: bytes | None = None,
    topic: str | None = None,
    since: datetime | None = None,
    dry_run: bool = False,
) -> int:
    """Puts copies of published rows into the outbox, in their order; returns how many."""
    from inorder.outbox.stores.retention import replay

    url = postgres_url(settings, "Kept rows")
    return replay(url, settings.relay.table, key=key, topic=topic, since=since, dry_run=dry_run)
