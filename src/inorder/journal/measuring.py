"""Journals, store and codec of an application, measured: wrappers that pass on results and errors as they are.

Who wants no figures does without the wrappers and pays nothing. The time of a stream is the time that its reader has
waited for it, not what the reader did in between.

What an application that uses journals, or the job `expire`, tells Prometheus about them.

| name                                                 | meaning |
|---|---|
| `inorder_journal_latency_seconds{topic,type}`        | how long `append`, `read`, `pointer`, `delete`, `purge` and |
|                                                      | `mark` took; of a read, what its reader waited |
| `inorder_journal_events_total{topic,type}`           | events that were appended (`append`) and read (`read`) |
| `inorder_journal_results_total{topic,type,result}`   | how often each of them was a `success` or a `failure` |
| `inorder_journal_encode_seconds{payload_type}`       | how long events took to become a record, `json` or `binary` |
| `inorder_journal_decode_seconds{payload_type}`       | how long an unreplicated record took to become events |
| `inorder_journal_consumer_seconds{step}`             | consumers for reads of the log: to get one (`acquire`), and |
|                                                      | for how long it was used (`use`) |
| `inorder_journal_store_latency_seconds{topic,type}`  | how long the store took to `read`, for a `pointer`, for |
|                                                      | `ids` and for the replicated `offset` |
| `inorder_journal_store_events_total{topic}`          | events that were read from the store |
| `inorder_head_cache_find_seconds{topic,result,when}` | questions to the head cache: the store was `ahead`, the |
|                                                      | journal was `known`; `limited`: forgotten, `late`: not seen |
|                                                      | in time, `absent`: no cache; at once (`now`) or `later` |
| `inorder_head_cache_journals{topic}`                 | journals that it holds |
| `inorder_head_cache_waiting{topic}`                  | readers that wait for it |
| `inorder_head_cache_record_age_seconds{topic}`       | how old records are when they reach it |
| `inorder_head_cache_offsets_total{topic,source}`     | offsets that it has moved on, by `kafka` and by the `store` |
| `inorder_expire_pass_seconds`                        | how long the job `expire` took to look at all topics |
| `inorder_expire_journals_total{topic,outcome}`       | expired journals that it `purged`, or `left` |

No label ever holds a key or an id.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inorder.database.pool import OnLent, ignore_loan
from inorder.engines.measures import BOUNDS, SILENT, Meter
from inorder.journal.action import Append
from inorder.journal.client import Journal, Journals
from inorder.journal.codec.records import append_record, events_of
from inorder.journal.reading.topic_cache import HeadCache
from inorder.journal.stores.ports import EventualJournal, JournalHead, LogRecord
from inorder.model.journal import MAX_SEQ_NR, DeleteTo, Event, EventRecord, Key, PartitionOffset, SeqNr
from inorder.model.message import Record

if TYPE_CHECKING:
    from inorder.journal.client import Journals

T = TypeVar("T")

SUCCESS: Final = "success"
FAILURE: Final = "failure"


class MeasuredJournal(Journal):
    """A journal whose verbs are timed and counted, each for itself: a delete that asks for the pointer is a delete."""

    def __init__(self, journals: Journals, key: Key, meter: Meter) -> None:
        super().__init__(journals, key)
        self._plain = Journal(journals, key)
        self._meter = meter

    def append(self, events: Iterable[Event], **options: Any) -> PartitionOffset:
        """Times it and counts the events."""
        given = list(events)
        with self._timed("append"):
            place = self._plain.append(given, **options)
        self._count("append", len(given))
        return place

    def append_later(self, events: Iterable[Event], **options: Any) -> Future[PartitionOffset]:
        """Times it up to the answer."""
        given, began = list(events), time.perf_counter()
        try:
            place = self._plain.append_later(given, **options)
        except BaseException:
            self._told("append", time.perf_counter() - began, FAILURE)
            raise

        def answered(answer: Future[PartitionOffset]) -> None:
            is_written = not answer.cancelled() and answer.exception() is None
            self._told("append", time.perf_counter() - began, SUCCESS if is_written else FAILURE)
            self._count("append", len(given) if is_written else 0)

        place.add_done_callback(answered)
        return place

    def read(self, *bounds: Any, **options: Any) -> Iterator[EventRecord]:
        """Times what the reader waits for, and counts the events that it got."""
        began = time.perf_counter()
        try:
            records = self._plain.read(*bounds, **options)
        except BaseException:
            self._told("read", time.perf_counter() - began, FAILURE)
            raise
        return _streamed(records, time.perf_counter() - began, self._read)

    def pointer(self) -> SeqNr | None:
        """Times it."""
        with self._timed("pointer"):
            return self._plain.pointer()

    def delete(self, to: DeleteTo = MAX_SEQ_NR) -> PartitionOffset | None:
        """Times it."""
        with self._timed("delete"):
            return self._plain.delete(to)

    def purge(self) -> PartitionOffset:
        """Times it."""
        with self._timed("purge"):
            return self._plain.purge()

    def mark(self, id: str | None = None) -> PartitionOffset:
        """Times it."""
        with self._timed("mark"):
            return self._plain.mark(id)

    @contextmanager
    def _timed(self, verb: str) -> Iterator[None]:
        began, result = time.perf_counter(), FAILURE
        try:
            yield
            result = SUCCESS
        finally:
            self._told(verb, time.perf_counter() - began, result)

    def _read(self, seconds: float, events: int, failed: bool) -> None:
        self._told("read", seconds, FAILURE if failed else SUCCESS)
        self._count("read", events)

    def _told(self, verb: str, seconds: float, result: str) -> None:
        self._meter.took("journal_latency", seconds, self.key.topic, verb)
        self._meter.add("journal_results", 1, self.key.topic, verb, result)

    def _count(self, verb: str, events: int) -> None:
        self._meter.add("journal_events", events, self.key.topic, verb)


class MeasuredStore:
    """The read side of a store, timed."""

    def __init__(self, store: EventualJournal, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def pointer(self, key: Key) -> JournalHead | None:
        """Times it."""
        return self._timed(key.topic, "pointer", lambda: self._store.pointer(key))

    def offset(self, topic: str, partition: int) -> int | None:
        """Times it."""
        return self._timed(topic, "offset", lambda: self._store.offset(topic, partition))

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        """Times it and counts the events."""

        def told(seconds: float, events: int, _failed: bool) -> None:
            self._meter.took("store_latency", seconds, key.topic, "read")
            self._meter.add("store_events", events, key.topic)

        return _streamed(self._store.read(key, head, from_seq_nr), 0.0, told)

    def ids(self, topic: str) -> Iterator[str]:
        """Times it."""

        def told(seconds: float, _ids: int, _failed: bool) -> None:
            self._meter.took("store_latency", seconds, topic, "ids")

        return _streamed(self._store.ids(topic), 0.0, told)

    def close(self) -> None:
        """Gives connections back."""
        self._store.close()

    def _timed(self, topic: str, verb: str, ask: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return ask()
        finally:
            self._meter.took("store_latency", time.perf_counter() - began, topic, verb)


class MeasuredCodec:
    """The codec of appends, timed by the kind of their values."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def encode(self, key: Key, events: Iterable[Event], *about: Any) -> Record:
        """Times `append_record`."""
        began = time.perf_counter()
        record = append_record(key, events, *about)
        kind = "json" if (record.value or b"").startswith(b"{") else "binary"
        self._meter.took("journal_encode", time.perf_counter() - began, kind)
        return record

    def decode(self, action: Append, record: LogRecord, topic: str, partition: int) -> list[EventRecord]:
        """Times `events_of`."""
        began = time.perf_counter()
        events = events_of(action, record, topic, partition)
        self._meter.took("journal_decode", time.perf_counter() - began, action.payload_type.value)
        return events


def lending(meter: Meter) -> OnLent:
    """Tells of the consumers that reads of the log borrow."""

    def told(taking: float, using: float) -> None:
        meter.took("journal_consumer", taking, "acquire")
        meter.took("journal_consumer", using, "use")

    return told


def _streamed(source: Iterator[T], spent: float, told: Callable[[float, int, bool], None]) -> Generator[T, None, None]:
    """The same stream; at its end, wherever that is, `told` hears seconds, items, and whether it failed."""
    items, failed = 0, True
    try:
        while True:
            began = time.perf_counter()
            try:
                item = next(source)
            except StopIteration:
                failed = False
                return
            finally:
                spent += time.perf_counter() - began
            items += 1
            yield item
    except GeneratorExit:
        failed = False
        raise
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
        told(spent, items, failed)


# Where the parts of journals meet the registry of an application; without one nothing is measured.

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class Instruments:
    """What is put around the parts; as it stands, nothing."""

    meter: Meter = SILENT
    on_lent: OnLent = ignore_loan
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

    metrics = journal_metrics(registry)
    codec = MeasuredCodec(metrics)
    return Instruments(metrics, lending(metrics), codec.encode, codec.decode, metrics)


_TIMES: Final = {
    "journal_latency": ("journal_latency", "How long a verb of a journal took.", ("topic", "type")),
    "journal_encode": ("journal_encode", "How long events took to become a record.", ("payload_type",)),
    "journal_decode": ("journal_decode", "How long a record took to become events.", ("payload_type",)),
    "journal_consumer": ("journal_consumer", "Consumers for reads of the log.", ("step",)),
    "store_latency": ("journal_store_latency", "How long the store took.", ("topic", "type")),
    "head_cache_find": ("head_cache_find", "Questions to the head cache.", ("topic", "result", "when")),
    "head_cache_record_age": ("head_cache_record_age", "How old records are when they reach it.", ("topic",)),
    "expire_pass": ("expire_pass", "How long a pass over all topics took.", ()),
}
_COUNTS: Final = {
    "journal_events": ("journal_events", "Events that were appended and read.", ("topic", "type")),
    "journal_results": ("journal_results", "How often a verb succeeded or failed.", ("topic", "type", "result")),
    "store_events": ("journal_store_events", "Events that were read from the store.", ("topic",)),
    "head_cache_offsets": ("head_cache_offsets", "Offsets that the cache has moved on.", ("topic", "source")),
    "expire_journals": ("expire_journals", "Expired journals.", ("topic", "outcome")),
}
# A read from memory, or the encoding of one event, takes microseconds.
_BUCKETS: Final = (0.000_01, 0.000_1, *BOUNDS)


class HeadReading(Protocol):
    """What a head cache holds of one topic."""

    @property
    def journals(self) -> int: ...

    @property
    def waiting(self) -> int: ...


ReadHeads = Callable[[], Mapping[str, HeadReading]]


class JournalMetrics:
    """The figures of all journals of a registry: a `Meter`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._times = {
            name: Histogram(f"inorder_{ours}_seconds", meaning, labels, buckets=_BUCKETS, registry=registry)
            for name, (ours, meaning, labels) in _TIMES.items()
        }
        self._counts = {
            name: Counter(f"inorder_{ours}", meaning, labels, registry=registry)
            for name, (ours, meaning, labels) in _COUNTS.items()
        }
        self._heads = HeadCollector()
        registry.register(self._heads)

    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Adds a time."""
        metric = self._times[name]
        (metric.labels(*labels) if labels else metric).observe(seconds)

    def add(self, name: str, number: float, *labels: str) -> None:
        """Adds a number."""
        self._counts[name].labels(*labels).inc(number)

    def watch(self, read: ReadHeads) -> Callable[[], None]:
        """Asks a head cache at each scrape; returns how to stop it."""
        return self._heads.watch(read)


class HeadCollector(Collector):
    """What the head caches hold, together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: list[ReadHeads] = []

    def watch(self, read: ReadHeads) -> Callable[[], None]:
        """Asks one more; returns how to stop it."""
        with self._lock:
            self._reads.append(read)

        def forget() -> None:
            with self._lock:
                if read in self._reads:
                    self._reads.remove(read)

        return forget

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape."""
        with self._lock:
            reads = list(self._reads)
        journals, waiting = Counts[str](), Counts[str]()
        for read in reads:
            for topic, reading in read().items():
                journals[topic] += reading.journals
                waiting[topic] += reading.waiting
        yield _gauge("head_cache_journals", "Journals that it holds.", journals)
        yield _gauge("head_cache_waiting", "Readers that wait for it.", waiting)


_known: WeakKeyDictionary[CollectorRegistry, JournalMetrics] = WeakKeyDictionary()
_known_lock = threading.Lock()


def journal_metrics(registry: CollectorRegistry) -> JournalMetrics:
    """The figures of a registry: the same for all journals that are given it, whenever they are opened."""
    with _known_lock:
        found = _known.get(registry)
        if found is None:
            found = _known[registry] = JournalMetrics(registry)
        return found


def _gauge(name: str, meaning: str, numbers: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"inorder_{name}", meaning, labels=("topic",))
    for topic, number in sorted(numbers.items()):
        family.add_metric((topic,), number)
    return family
