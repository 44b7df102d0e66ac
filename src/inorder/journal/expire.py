"""The job `expire`: purges journals whose day of expiry has passed, by an action in the log like any other.

An append says how long its journal lives after it, and the store has the day on which that ends. A journal is purged
when the whole day is over, so never too early and at most a day late; all earlier days are checked too, so that a day
on which the job did not run is made up for.

The store may be behind. Before it purges a journal the job writes a mark and reads the journal up to it, as readers
do: if an append is in the log alone, or has moved the day meanwhile, the journal stays. The purge has the end of the
journal at the mark as its condition: after an append in between it is void (`life.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from inorder.journal.client import JournalClient
from inorder.journal.reading.head import ReadPlan
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key


class ExpiryIndex(Protocol):
    """What the job needs of a store."""

    def expired(self, topic: str, before: date) -> Iterator[str]:
        """The ids of the journals of a topic whose `expire_on` is before a day, each once, in any order."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A journal that is expired according to the store, and whether it was purged."""

    key: Key
    is_purged: bool
    """False if it lives on, or in a dry run."""

    def __str__(self) -> str:
        return f"{self.key} {'is purged' if self.is_purged else 'is left'}."


def expire(
    journals: JournalClient,
    index: ExpiryIndex,
    topics: Iterable[str],
    today: date,
    stop: threading.Event,
    *,
    per_second: float,
    dry_run: bool = False,
) -> Iterator[Expired]:
    """Purges journals that expired before today, at most `per_second`; ends early when `stop` is set."""
    for topic in topics:
        for id in index.expired(topic, today):
            if stop.is_set():
                return
            key = Key(id, topic)
            is_purged = not dry_run and _purge_expired(journals, key, today)
            if is_purged:
                stop.wait(1 / per_second)
            yield Expired(key, is_purged)


def _purge_expired(journals: JournalClient, key: Key, today: date) -> bool:
    try:
        marked = journals.moment(key)
    except DamagedRecordError:
        return False  # parked: what its records say is unknown
    return has_expired(marked.moment.plan, today) and journals.journal(key).purge_unchanged(marked)


def has_expired(plan: ReadPlan, today: date) -> bool:
    """Whether a journal's last append is in the store, and its day of expiry is over."""
    if plan.head is None or plan.log_from is not None or plan.head.expiry is None:
        return False
    return plan.head.expiry.on < today
