"""The load of the demo: a plan that follows from a seed alone, and the writers that carry it out."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import psycopg

from inorder.database.postgres import connect
from inorder.model.message import Message
from inorder.outbox import Outbox

KEYS = 500
LATE_KEYS = 5
"""The last keys belong to transactions that stay open while later ids are published."""

MOST_UPDATES = 8


class UpdateKind(Enum):
    """What a message carries."""

    FULL = auto()
    ONLY_ENABLED = auto()
    ONLY_DATA = auto()
    INVALID = auto()
    """A wrong type: the pipeline must make a dead letter of it and continue."""


_KINDS = [UpdateKind.FULL] * 12 + [UpdateKind.ONLY_ENABLED] * 3 + [UpdateKind.ONLY_DATA] * 4 + [UpdateKind.INVALID]


@dataclass(frozen=True, slots=True)
class PlannedUpdate:
    key: int
    kind: UpdateKind


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    updates: tuple[PlannedUpdate, ...]
    commits: bool = True
    is_late: bool = False


def plan_load(events: int, seed: int) -> list[PlannedTransaction]:
    """Transactions with `events` updates in all; about a tenth of them roll back, a few commit late."""
    chance = random.Random(seed)  # noqa: S311 - a load, not a secret
    return list(_plans(events, chance))


def _plans(events: int, chance: random.Random) -> Iterator[PlannedTransaction]:
    left = events
    for key in range(KEYS - LATE_KEYS + 1, KEYS + 1):
        if left > MOST_UPDATES:
            left -= 1
            yield PlannedTransaction((PlannedUpdate(key, UpdateKind.FULL),), is_late=True)
    while left:
        keys = chance.sample(range(1, KEYS - LATE_KEYS + 1), min(left, chance.randint(1, MOST_UPDATES)))
        left -= len(keys)
        # Locks are taken in the order of keys, so that writers wait for each other and never in a circle.
        updates = tuple(PlannedUpdate(key, chance.choice(_KINDS)) for key in sorted(keys))
        yield PlannedTransaction(updates, commits=chance.random() > 0.1)


def body(update: PlannedUpdate, place: int) -> dict[str, object]:
    """The message's value; `place` counts the events of its key, so that the checker knows which one this is."""
    enabled, data = place % 3 != 0, f"event {place} of key {update.key}"
    fields: dict[UpdateKind, dict[str, object]] = {
        UpdateKind.FULL: {"enabled": enabled, "data": data},
        UpdateKind.ONLY_ENABLED: {"enabled": enabled},
        UpdateKind.ONLY_DATA: {"data": data},
        UpdateKind.INVALID: {"enabled": "perhaps", "data": data},
    }
    return {"id": update.key, "place": place, **fields[update.kind]}


# The demo's application: several connections that change a business table and publish in the same transaction.

WRITERS = 4
LATE_SECONDS = 5.0
"""How long a late transaction stays open after its insert."""

_TABLE = """
CREATE TABLE IF NOT EXISTS demo_account (id bigint PRIMARY KEY, places bigint NOT NULL DEFAULT 0);
INSERT INTO demo_account (id) SELECT generate_series(1, %d) ON CONFLICT DO NOTHING;
"""
_LOCK = "SELECT id FROM demo_account WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_COUNT = "UPDATE demo_account SET places = places + 1 WHERE id = ANY(%s) RETURNING id, places"


@dataclass(frozen=True, slots=True)
class Committed:
    """An event whose COMMIT has returned."""

    key: int
    place: int
    fields: dict[str, object]
    is_valid: bool


@dataclass
class Ledger:
    """What the writers know to be committed: the only source of the checker."""

    entries: list[Committed] = field(default_factory=list)
    rolled_back: int = 0

    def note(self, plan: PlannedTransaction, entries: Sequence[Committed]) -> None:
        """Takes the entries of one transaction; appending to a list is atomic, so writers share it."""
        if plan.commits:
            self.entries.extend(entries)
        else:
            self.rolled_back += len(entries)


def install(url: str) -> None:
    """Creates the business table."""
    with connect(url, "inorder demo") as connection:
        connection.execute(_TABLE % KEYS)


def write(
    url: str,
    topic: str,
    plans: Sequence[PlannedTransaction],
    ledger: Ledger,
    stop: threading.Event,
    *,
    late_seconds: float = LATE_SECONDS,
) -> None:
    """Runs the planned transactions on several threads; returns when all are done, or soon after `stop` is set."""
    work: queue.SimpleQueue[PlannedTransaction] = queue.SimpleQueue()
    for plan in plans:
        if not plan.is_late:
            work.put(plan)
    late = [plan for plan in plans if plan.is_late]
    with ThreadPoolExecutor(WRITERS + 1, thread_name_prefix="demo-writer") as pool:
        jobs = [pool.submit(_write_all, url, topic, work, ledger, stop) for _ in range(WRITERS)]
        jobs.append(pool.submit(_write_late, url, topic, late, ledger, stop, late_seconds))
        for job in jobs:
            job.result()


def _write_all(
    url: str, topic: str, work: queue.SimpleQueue[PlannedTransaction], ledger: Ledger, stop: threading.Event
) -> None:
    with connect(url, "inorder demo") as connection:
        while not stop.is_set():
            try:
                plan = work.get_nowait()
            except queue.Empty:
                return
            entries = _publish(connection, topic, plan)
            _end(connection, plan, entries, ledger)


def _write_late(
    url: str, topic: str, plans: Sequence[PlannedTransaction], ledger: Ledger, stop: threading.Event, seconds: float
) -> None:
    """Publishes first and commits last: its ids are below those that were published long ago."""
    for plan in plans:
        with connect(url, "inorder demo") as connection:
            entries = _publish(connection, topic, plan)
            stop.wait(seconds / max(len(plans), 1))
            _end(connection, plan, entries, ledger)


def _publish(connection: psycopg.Connection[Any], topic: str, plan: PlannedTransaction) -> list[Committed]:
    keys = [update.key for update in plan.updates]
    connection.execute(_LOCK, (keys,))
    places = dict(connection.execute(_COUNT, (keys,)).fetchall())
    bodies = [body(update, places[update.key]) for update in plan.updates]
    messages = [Message(topic, key=update.key, value=each) for update, each in zip(plan.updates, bodies, strict=True)]
    Outbox().publish_list(connection, messages)
    return [_entry(update.kind, each) for update, each in zip(plan.updates, bodies, strict=True)]


def _entry(kind: UpdateKind, message: dict[str, object]) -> Committed:
    fields = {name: value for name, value in message.items() if name in ("enabled", "data")}
    return Committed(int(str(message["id"])), int(str(message["place"])), fields, kind is not UpdateKind.INVALID)


def _end(
    connection: psycopg.Connection[Any], plan: PlannedTransaction, entries: Sequence[Committed], ledger: Ledger
) -> None:
    if plan.commits:
        connection.commit()
    else:
        connection.rollback()
    ledger.note(plan, entries)
