"""The Python library eventsourcing on the same PostgreSQL: aggregates saved, and one recovered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

from inorder.bench.journal import PAYLOAD, JournalOptions, count_rate

NAME = "eventsourcing"
MISSING = "eventsourcing is not installed here; `pip install 'eventsourcing[postgres]'` puts it into this comparison."


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """What the library does: called one after another, but for updates."""

    batched_per_second: float
    singles_per_second: float
    recovery_ms: list[float]
    updates_per_second: float


def is_installed() -> bool:
    """Whether it can be measured at all."""
    return find_spec("eventsourcing") is not None and find_spec("psycopg_pool") is not None


def measure(url: str, options: JournalOptions) -> PeerFigures:
    """Saves batches, then single events, then reads an aggregate of the usual size."""
    application, account = _application(url, options.writers)
    batched = _rate(application, account, options.batch, options)
    singles = _rate(application, account, 1, options)
    recovered = _saved(application, account, options)
    times = []
    for _ in range(options.reads + 1):
        began = time.perf_counter()
        found = application.repository.get(recovered)
        times.append(1000 * (time.perf_counter() - began))
        assert found.version == options.journal_events + 1, "the peer lost events"  # noqa: S101 - worth nothing then
    updates = count_rate(partial(_update, application, account, options.updates), options)
    application.close()
    return PeerFigures(batched, singles, times[1:], updates)


def _update(application: Any, account: Any, times: int, _writer: int) -> int:
    """Recovers, changes and saves an aggregate, so many times; returns its count."""
    made = account()
    application.save(made)
    for _ in range(times):
        made = application.repository.get(made.id)
        made.note(PAYLOAD.decode())
        application.save(made)
    count: int = made.count
    return count


def _rate(application: Any, account: Any, batch: int, options: JournalOptions) -> float:
    made = account()
    application.save(made)
    events, end = 0, time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        for _ in range(batch):
            made.note(PAYLOAD.decode())
        application.save(made)
        events += batch
    return events / options.seconds


def _saved(application: Any, account: Any, options: JournalOptions) -> UUID:
    made = account()
    for _ in range(options.journal_events):
        made.note(PAYLOAD.decode())
    application.save(made)
    found: UUID = made.id
    return found


def _application(url: str, writers: int) -> tuple[Any, Any]:
    # Imported here: only this measurement needs it.
    application: Any = import_module("eventsourcing.application")
    domain: Any = import_module("eventsourcing.domain")

    class Account(domain.Aggregate):  # type: ignore[misc]  # untyped, since it need not be installed
        """An aggregate that takes notes."""

        def __init__(self) -> None:
            self.count = 0

        @domain.event("Noted")  # type: ignore[untyped-decorator]  # likewise
        def note(self, text: str) -> None:
            """One event."""
            self.count += len(text) > 0

    return application.Application(env=_environment(url, writers)), Account


def _environment(url: str, writers: int) -> Mapping[str, str]:
    parts = urlsplit(url.replace("postgresql+psycopg", "postgresql", 1))
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "APPLICATION_NAME": f"bench{uuid4().hex[:8]}",
        "POSTGRES_POOL_SIZE": str(writers),
        "POSTGRES_DBNAME": parts.path.strip("/"),
        "POSTGRES_HOST": parts.hostname or "127.0.0.1",
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": unquote(parts.username or "postgres"),
        "POSTGRES_PASSWORD": unquote(parts.password or "none"),
    }
