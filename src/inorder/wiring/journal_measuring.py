"""Where the parts of journals meet the registry of an application; without one nothing is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inorder.journal.client import Journal, Journals
from inorder.journal.codec.records import append_record, events_of
from inorder.journal.measuring import MeasuredCodec, MeasuredJournal, MeasuredStore, lending
from inorder.journal.reading.topic_cache import HeadCache
from inorder.model.journal import EventRecord, Key
from inorder.model.message import Record
from inorder.ports.journal_store import EventualJournal
from inorder.ports.meter import SILENT, Meter
from inorder.ports.pool import OnLent, untold

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from inorder.observe.journal_metrics import JournalMetrics


@dataclass(frozen=True, slots=True)
class Instruments:
    """What is put around the parts; as it stands, nothing."""

    meter: Meter = SILENT
    on_lent: OnLent = untold
    encode: Callable[..., Record] = append_record
    decode: Callable[..., list[EventRecord]] = events_of
    metrics: JournalMetrics | None = None

    def store(self, store: EventualJournal) -> EventualJournal:
        """The store, measured where that is wanted."""
        return store if self.metrics is None else MeasuredStore(store, self.metrics)

    def journal(self, journals: Journals, key: Key) -> Journal:
        """A journal, measured where that is wanted."""
        return Journal(journals, key) if self.metrics is None else MeasuredJournal(journals, key, self.metrics)

    def watch(self, heads: HeadCache | None) -> Callable[[], None]:
        """Asks a head cache at each scrape; returns how to stop it."""
        if self.metrics is None or heads is None:
            return lambda: None
        return self.metrics.watch(heads.readings)


def instruments(registry: CollectorRegistry | None) -> Instruments:
    """What to measure with; several users of one registry share its figures."""
    if registry is None:
        return Instruments()
    from inorder.observe.journal_metrics import journal_metrics

    metrics = journal_metrics(registry)
    codec = MeasuredCodec(metrics)
    return Instruments(metrics, lending(metrics), codec.encode, codec.decode, metrics)
