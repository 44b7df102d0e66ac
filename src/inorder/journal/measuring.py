"""What is watched in an application that uses journals, and in the job `expire`: figures, slow calls, a failing store.

`JournalClient`, the reader, the head cache and the job report to a `Meter` (`engines/measures.py`), which is `SILENT`
without a registry of Prometheus. `JournalMetrics` is the meter with one. Calls that take long are logged (`SlowCalls`).

The store is watched by a wrapper, since there are several (`WatchedStore`). After many failures in a row it does not
query the store for a while: a call fails at once, instead of after its time limit with a thread and a connection held
meanwhile. An error that may pass counts as a failure (`TransientError`). Any other answer is an answer.

| name                                                 | meaning |
|---|---|
| `inorder_journal_latency_seconds{topic,type}`        | how long `append`, `read`, `pointer`, `delete`, `purge` and |
|                                                      | `mark` took; for a read, how long its reader waited; for |
|                                                      | snapshots `save_snapshot`, `snapshot`, `snapshots`, |
|                                                      | `delete_snapshots` and, without its events, `recover` |
| `inorder_journal_events_total{topic,type}`           | events appended (`append`) and read (`read`) |
| `inorder_journal_results_total{topic,type,result}`   | how often each of them was a `success` or a `failure` |
| `inorder_journal_encode_seconds{payload_type}`       | how long events took to become a record, `json` or `binary` |
| `inorder_journal_decode_seconds{payload_type}`       | how long an unreplicated record took to become events |
| `inorder_journal_consumer_seconds{step}`             | consumers for reads of the log: time to get one |
|                                                      | (`acquire`) and time in use (`use`) |
| `inorder_journal_store_latency_seconds{topic,type}`  | how long the store took to `read`, for a `pointer`, for |
|                                                      | `ids` and for the replicated `offset` |
| `inorder_journal_store_events_total{topic}`          | events read from the store |
| `inorder_journal_store_results_total{topic,result}`  | calls to the store: a `success`, a `failure`, or `refused` |
|                                                      | because it failed too often in a row |
| `inorder_head_cache_find_seconds{topic,result,when}` | look-ups in the head cache: the store was `ahead`, the |
|                                                      | journal was `known`; `limited`: forgotten, `late`: not seen |
|                                                      | in time, `absent`: no cache; answered `now` or `later` |
| `inorder_head_cache_journals{topic}`                 | journals that it holds |
| `inorder_head_cache_waiting{topic}`                  | readers that wait for it |
| `inorder_head_cache_record_age_seconds{topic}`       | how old records are when they reach it |
| `inorder_head_cache_offsets_total{topic,source}`     | offsets by which `kafka` and the `store` moved it on |
| `inorder_head_cache_restarts_total{topic,result}`    | how often its thread started again after a failure: |
|                                                      | `expected` (Kafka or the store) or `unexpected` |
| `inorder_projection_lag{projection,topic,partition}` | offsets that are not in the read model, of the partitions |
|                                                      | that this instance has |
| `inorder_projection_waiting{projection,topic,partition}` | 1 if the partition waits after a failure, else 0 |
| `inorder_projection_changes_total{projection,topic,kind}` | changes that were committed: `appended`, `deleted`, |
|                                                      | `purged` |
| `inorder_projection_failures_total{projection,topic}` | transactions that failed and are tried again |
| `inorder_subscription_events_total{topic}`           | events that subscriptions returned |
| `inorder_subscription_event_age_seconds{topic}`      | how old the oldest event of a batch was then |
| `inorder_expire_pass_seconds`                        | how long one pass of the job `expire` took |
| `inorder_expire_journals_total{topic,outcome}`       | expired journals that it `purged`, or `left` |

No label ever holds a key or an id.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter as Counts
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic, perf_counter
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inorder.database.pool import OnLent
from inorder.engines.measures import BOUNDS, SILENT, Meter
from inorder.journal.reading.head_cache import HeadCacheReading
from inorder.journal.stores.ports import EventualJournal, JournalHead
from inorder.model.breaker import BreakerCount, BreakerOptions
from inorder.model.errors import TransientError, UnreachableError
from inorder.model.journal import EventRecord, Key, SeqNr
from inorder.model.partitioning import Place

_TIMES: Final = {
    "journal_latency": ("journal_latency", "How long a verb of a journal took.", ("topic", "type")),
    "journal_encode": ("journal_encode", "How long events took to become a record.", ("payload_type",)),
    "journal_decode": ("journal_decode", "How long a record took to become events.", ("payload_type",)),
    "journal_consumer": ("journal_consumer", "Consumers for reads of the log.", ("step",)),
    "store_latency": ("journal_store_latency", "How long the store took.", ("topic", "type")),
    "head_cache_find": ("head_cache_find", "Questions to the head cache.", ("topic", "result", "when")),
    "head_cache_record_age": ("head_cache_record_age", "How old records are when they reach it.", ("topic",)),
    "subscription_event_age": ("subscription_event_age", "How old events are when they are returned.", ("topic",)),
    "expire_pass": ("expire_pass", "How long a pass over all topics took.", ()),
}
_COUNTS: Final = {
    "journal_events": ("journal_events", "Events that were appended and read.", ("topic", "type")),
    "journal_results": ("journal_results", "How often a verb succeeded or failed.", ("topic", "type", "result")),
    "store_events": ("journal_store_events", "Events that were read from the store.", ("topic",)),
    "store_results": ("journal_store_results", "How calls to the store ended.", ("topic", "result")),
    "head_cache_offsets": ("head_cache_offsets", "Offsets that the cache has moved on.", ("topic", "source")),
    "head_cache_restarts": ("head_cache_restarts", "Starts of its thread after a failure.", ("topic", "result")),
    "projection_changes": ("projection_changes", "Changes that were committed.", ("projection", "topic", "kind")),
    "projection_failures": ("projection_failures", "Transactions that failed.", ("projection", "topic")),
    "subscription_events": ("subscription_events", "Events that subscriptions returned.", ("topic",)),
    "expire_journals": ("expire_journals", "Expired journals.", ("topic", "outcome")),
}
# A read from memory, or the encoding of one event, takes microseconds.
_BUCKETS: Final = (0.000_01, 0.000_1, *BOUNDS)


ReadHeads = Callable[[], Mapping[str, HeadCacheReading]]
ReadLags = Callable[[], Mapping[Place, int]]
ReadWaiting = Callable[[], Mapping[Place, str]]


def journal_meter(registry: CollectorRegistry | None) -> Meter:
    return SILENT if registry is None else journal_metrics(registry)


def journal_metrics(registry: CollectorRegistry) -> JournalMetrics:
    """The metrics of a registry: the same object for all journals that use it, whenever they are opened."""
    with _known_lock:
        found = _known.get(registry)
        if found is None:
            found = _known[registry] = JournalMetrics(registry)
        return found


_known: WeakKeyDictionary[CollectorRegistry, JournalMetrics] = WeakKeyDictionary()
_known_lock = threading.Lock()


class JournalMetrics:
    """A `Meter` on a registry."""

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
        self._projections = ProjectionCollector()
        registry.register(self._heads)
        registry.register(self._projections)

    def took(self, name: str, seconds: float, *labels: str) -> None:
        metric = self._times[name]
        (metric.labels(*labels) if labels else metric).observe(seconds)

    def add(self, name: str, number: float, *labels: str) -> None:
        self._counts[name].labels(*labels).inc(number)

    def watch(self, read: ReadHeads) -> Callable[[], None]:
        """Reads a head cache at each scrape; returns how to stop that."""
        return self._heads.watch(read)

    def watch_projection(self, name: str, lags: ReadLags, waiting: ReadWaiting) -> Callable[[], None]:
        """Reads the partitions of a projection at each scrape; returns how to stop that."""
        return self._projections.watch(name, lags, waiting)


class HeadCollector(Collector):
    """The sum of what all head caches hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: list[ReadHeads] = []

    def watch(self, read: ReadHeads) -> Callable[[], None]:
        with self._lock:
            self._reads.append(read)

        def forget() -> None:
            with self._lock:
                if read in self._reads:
                    self._reads.remove(read)

        return forget

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            reads = list(self._reads)
        journals, waiting = Counts[str](), Counts[str]()
        for read in reads:
            for topic, reading in read().items():
                journals[topic] += reading.journals
                waiting[topic] += reading.waiting
        yield _gauge("head_cache_journals", "Journals that it holds.", journals)
        yield _gauge("head_cache_waiting", "Readers that wait for it.", waiting)


class ProjectionCollector(Collector):
    """The partitions that the projections of this process have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: list[tuple[str, ReadLags, ReadWaiting]] = []

    def watch(self, name: str, lags: ReadLags, waiting: ReadWaiting) -> Callable[[], None]:
        watched = name, lags, waiting
        with self._lock:
            self._reads.append(watched)

        def forget() -> None:
            with self._lock:
                if watched in self._reads:
                    self._reads.remove(watched)

        return forget

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            reads = list(self._reads)
        labels = ("projection", "topic", "partition")
        lag = GaugeMetricFamily("inorder_projection_lag", "Offsets not in the read model.", labels=labels)
        waits = GaugeMetricFamily("inorder_projection_waiting", "Whether a partition waits.", labels=labels)
        for name, read_lags, read_waiting in reads:
            waiting = read_waiting()
            for place, behind in sorted(read_lags().items()):
                named = name, place[0], str(place[1])
                lag.add_metric(named, behind)
                waits.add_metric(named, 1.0 if place in waiting else 0.0)
        yield lag
        yield waits


def _gauge(name: str, meaning: str, numbers: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"inorder_{name}", meaning, labels=("topic",))
    for topic, number in sorted(numbers.items()):
        family.add_metric((topic,), number)
    return family


def measure_loans(meter: Meter) -> OnLent:
    """Reports the loans of consumers for reads of the log."""

    def report(taking: float, using: float) -> None:
        meter.took("journal_consumer", taking, "acquire")
        meter.took("journal_consumer", using, "use")

    return report


T = TypeVar("T")
log = logging.getLogger("inorder.journal")

WARN_EVERY_SECONDS: Final = 10.0
"""At most one warning in this time for a kind of call and a topic; the next one counts those in between."""


class SlowCalls:
    """Logs calls that took longer than they should; thread-safe."""

    def __init__(self, limits: Mapping[str, float], clock: Callable[[], float] = monotonic) -> None:
        """`limits` are seconds by kind of call; a call that is not named is never slow."""
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._warned_at: dict[tuple[str, str], float] = {}
        self._unreported = Counts[tuple[str, str]]()

    def report(self, call: str, topic: str, seconds: float) -> None:
        limit = self._limits.get(call)
        if limit is None or seconds <= limit:
            return
        with self._lock:
            kind, now = (call, topic), self._clock()
            if now - self._warned_at.get(kind, float("-inf")) < WARN_EVERY_SECONDS:
                self._unreported[kind] += 1
                return
            self._warned_at[kind] = now
            others = self._unreported.pop(kind, 0)
        fields = {"call": call, "topic": topic, "seconds": round(seconds, 3), "limit": limit, "others": others}
        log.warning("journal.slow_call", extra=fields)


@contextmanager
def timed(report: Callable[[float], None]) -> Iterator[None]:
    """Passes the seconds that the block takes to `report`, whether it succeeds or fails."""
    began = perf_counter()
    try:
        yield
    finally:
        report(perf_counter() - began)


def timed_stream(
    source: Iterator[T], report: Callable[[float, int, bool], None], *, spent: float = 0.0
) -> Generator[T, None, None]:
    """The same stream; at its end `report` gets the seconds waited for it, its items, and whether it succeeded.

    A reader that stops early succeeds. `spent` is what was waited for before the stream began.
    """
    items, is_success = 0, False
    try:
        while True:
            began = perf_counter()
            try:
                item = next(source)
            except StopIteration:
                is_success = True
                return
            finally:
                spent += perf_counter() - began
            items += 1
            yield item
    except GeneratorExit:
        is_success = True
        raise
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()
        report(spent, items, is_success)


class StoreBreaker:
    """Refuses calls to a store that fails; thread-safe. While half-open it lets all calls through until one fails."""

    def __init__(self, options: BreakerOptions, clock: Callable[[], float] = monotonic) -> None:
        self._count = BreakerCount(options)
        self._clock = clock
        self._lock = threading.Lock()

    def require_closed(self) -> None:
        """Raises `UnreachableError` while it is open."""
        with self._lock:
            count, now = self._count, self._clock()
        if not count.allows(now):
            options, left = count.options, count.options.open_seconds - (now - (count.opened_at or now))
            raise UnreachableError(
                f"The store of journals failed {options.threshold} times in a row; it is not queried for {left:.1f} s.",
                hint="The log event `journal.store_breaker_opened` has its last error; see [journal.breaker].",
            )

    def succeed(self) -> None:
        with self._lock:
            was, self._count = self._count, self._count.after_success()
        if was.opened_at is not None:
            log.info("journal.store_breaker_closed")

    def fail(self, error: TransientError) -> None:
        with self._lock:
            was = self._count
            if was.options.is_enabled:
                self._count = was.after_failure(self._clock())
            has_opened = self._count.opened_at not in (None, was.opened_at)
        if has_opened:
            fields = {"open_seconds": was.options.open_seconds, "error": str(error)}
            log.error("journal.store_breaker_opened", extra=fields)


class WatchedStore:
    """The read side of a store: measures each verb, logs slow ones, and does not query a store that fails."""

    def __init__(
        self,
        store: EventualJournal,
        meter: Meter = SILENT,
        slow_calls: SlowCalls | None = None,
        breaker: StoreBreaker | None = None,
    ) -> None:
        self._store = store
        self._meter = meter
        self._slow_calls = slow_calls
        self._breaker = breaker or StoreBreaker(BreakerOptions(is_enabled=False))

    def pointer(self, key: Key) -> JournalHead | None:
        with timed(partial(self._report, key.topic, "pointer")), self._watched(key.topic):
            return self._store.pointer(key)

    def offset(self, topic: str, partition: int) -> int | None:
        with timed(partial(self._report, topic, "offset")), self._watched(topic):
            return self._store.offset(topic, partition)

    def read(self, key: Key, head: JournalHead, from_seq_nr: SeqNr) -> Generator[EventRecord, None, None]:
        def report(seconds: float, events: int, _: bool) -> None:
            self._report(key.topic, "read", seconds)
            self._meter.add("store_events", events, key.topic)

        return timed_stream(self._stream(key.topic, self._store.read(key, head, from_seq_nr)), report)

    def ids(self, topic: str) -> Iterator[str]:
        def report(seconds: float, _ids: int, _: bool) -> None:
            self._report(topic, "ids", seconds)

        return timed_stream(self._stream(topic, self._store.ids(topic)), report)

    def close(self) -> None:
        self._store.close()

    def _stream(self, topic: str, rows: Iterator[T]) -> Generator[T, None, None]:
        with self._watched(topic):
            yield from rows

    @contextmanager
    def _watched(self, topic: str) -> Iterator[None]:
        result = "refused"
        try:
            self._breaker.require_closed()
            result = "success"
            yield
            self._breaker.succeed()
        except TransientError as error:
            if result == "success":
                result = "failure"
                self._breaker.fail(error)
            raise
        finally:
            self._meter.add("store_results", 1, topic, result)

    def _report(self, topic: str, verb: str, seconds: float) -> None:
        self._meter.took("store_latency", seconds, topic, verb)
        if self._slow_calls is not None:
            self._slow_calls.report(f"store_{verb}", topic, seconds)
