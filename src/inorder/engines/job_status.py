"""Health and metrics of a running job of the pipeline.

The driver listens at `health.listen`. Tasks report what they have done with the outcomes of their slices; the lag is
read from Kafka and the store now and then, on a thread of its own.

The metrics are read from memory at each scrape:

| name                                                     | meaning |
|---|---|
| `inorder_pipeline_running`                               | 1 while the job runs |
| `inorder_pipeline_records_total{topic,outcome}` | records that were read, by what became of them: `applied`,|
|                                                          | `identical`, `stale`, `ignored`, `rejected`, `replayed` |
| `inorder_pipeline_next_offset{topic,partition}`          | where a partition goes on |
| `inorder_pipeline_phase_seconds_total{phase}`            | where the time goes |
| `inorder_pipeline_last_slice_age_seconds`                | how long ago a slice was applied |
| `inorder_pipeline_lag_records{topic,partition}`          | offsets between a partition's end and what is applied |
| `inorder_pipeline_lag_age_seconds`                       | how old these are; it grows while Kafka or the store is |
|                                                          | away |

They carry the label `job` too. The job `replicate` has these besides; `type` is `append`, `delete`, `purge` or
`mark`:

| name                                                        | meaning |
|---|---|
| `inorder_replicator_replication_latency_seconds{topic,type}`| from a record's time to its commit in the store |
| `inorder_replicator_delivery_latency_seconds{topic,type}`   | from a record's time to when its slice was read |
| `inorder_replicator_records_total{topic}`                   | records of journals |
| `inorder_replicator_bytes_total{topic}`                     | bytes of their values |
| `inorder_replicator_events_total{topic}`                    | events that were written to the store |
| `inorder_replicator_forks_total{topic}`                     | events that lost against those of another writer |
| `inorder_replicator_parked_journals_total{topic}`           | how often a journal was parked, or got more records |
|                                                             | into quarantine |
| `inorder_replicator_quarantined_records_total{topic}`       | records that went to quarantine |
| `inorder_replicator_round_seconds{topic}`                   | from reading a slice to its commit |
| `inorder_replicator_round_records{topic}`                   | records of a slice |
| `inorder_replicator_version_records_total{topic,version}` | records by the version of the library that wrote them |
| `inorder_replicator_expiry_journals_total{topic,expires}` | journals that a slice wrote to, by how long they live: |
| | `none` for ever, else up to a `day`, `week`, `month`, |
|                                                             | `year`, or `longer` |
| `inorder_journal_replica_latency_seconds{topic,type}`       | how long the store took: `offsets`, `lock_offset`, |
|                                                             | `parked`, `heads`, `carry_out`, `move_offset`, |
|                                                             | `commit` |

Figures come from the tasks with the outcomes of their slices. Those of a slice whose outcome was lost are missing
here; the store is right. No label ever holds a key or an id.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import TracebackType
from typing import Final, Self, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from inorder.engines.measures import BOUNDS, COUNT_BOUNDS, Histogram, absorb, read_histograms, under
from inorder.engines.progress import FIGURES
from inorder.engines.slice_work import Measures, SliceOutcome
from inorder.model.errors import GuaranteeError
from inorder.model.partitioning import Place
from inorder.observe.endpoint import Endpoint, PeriodicReader
from inorder.observe.metrics import MetricsRegistry

Lag = Mapping[Place, int]
Clock = Callable[[], float]


class JobFigures:
    """A listener that keeps what a job has done, by topic; any thread may read it."""

    def __init__(self, job: str, clock: Clock = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, Counter[str]] = {}
        self._offsets: dict[Place, int] = {}
        self._phases: Counter[str] = Counter()
        self._measures: dict[str, dict[str, int]] = {}
        self._last: float | None = None
        self._stopped: dict[Place, str] = {}

    def applied(self, outcome: SliceOutcome) -> None:
        """Adds an outcome."""
        with self._lock:
            figures = {name: getattr(outcome, name) for name in FIGURES if name != "read"}
            self._records.setdefault(outcome.topic, Counter()).update(figures)
            self._offsets[outcome.topic, outcome.partition] = outcome.next_offset
            if outcome.measures:
                absorb(self._measures.setdefault(outcome.topic, {}), outcome.measures)
            self._last = self._clock()

    def spent(self, phases: Mapping[str, float]) -> None:
        """Adds the seconds of some phases."""
        with self._lock:
            self._phases.update(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """Remembers why a partition is stopped."""
        with self._lock:
            self._stopped[place] = error.message

    @property
    def trouble(self) -> str:
        """Which partitions are stopped and why, in a sentence; empty where none is."""
        with self._lock:
            found = dict(self._stopped)
        if not found:
            return ""
        (topic, number), message = next(iter(found.items()))
        more = f" And {len(found) - 1} more partitions are stopped." if len(found) > 1 else ""
        return f"{topic}[{number}] is stopped: {message}{more}"

    def reading(self, *, is_running: bool, lag: LagReading | None) -> PipelineReading:
        """All of it, as it is now."""
        with self._lock:
            return PipelineReading(
                job=self._job,
                is_running=is_running,
                records={topic: dict(found) for topic, found in self._records.items()},
                offsets=dict(self._offsets),
                phases=dict(self._phases),
                last_slice_age=None if self._last is None else self._clock() - self._last,
                lag=lag,
                measures={topic: dict(found) for topic, found in self._measures.items()},
            )


class JobService:
    """Serves a job's health and metrics for as long as the block lasts; without an address it does nothing."""

    def __init__(self, address: tuple[str, int] | None, job: str, lag: Callable[[], Lag]) -> None:
        """`lag` reads how many offsets wait in each partition; it may block and raise `InorderError`."""
        self.hindrance = ""
        """Why the job cannot work, where the job itself sets it."""
        self.listener = JobFigures(job)
        self._job = job
        self._is_running = False
        self._lag = PeriodicReader("lag", lag)
        metrics = JobMetrics(self.reading)
        self.registry = metrics.registry if address else None
        """For the job's own figures, where metrics are served."""
        self._endpoint = Endpoint(address, self.trouble, metrics.text) if address else None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where health and metrics are served, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def reading(self) -> PipelineReading:
        """How the job is, from memory."""
        last = self._lag.last
        return self.listener.reading(is_running=self._is_running, lag=None if last is None else LagReading(*last))

    def trouble(self) -> str:
        """Why the job does not work, in a sentence; empty while it works."""
        if not self._is_running:
            return f"The job {self._job} does not run."
        return self.hindrance or self.listener.trouble or self._lag.failure

    def __enter__(self) -> Self:
        if self._endpoint is not None:
            self._endpoint.start()
            self._lag.start()
        self._is_running = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        self._lag.stop()
        if self._endpoint is not None:
            self._endpoint.stop()


_COUNTS: Final = {
    "records": ("records", "Records of journals."),
    "bytes": ("bytes", "Bytes of their values."),
    "events": ("events", "Events that were written to the store."),
    "forks": ("forks", "Events that lost against those of another writer."),
    "parked": ("parked_journals", "How often a journal was parked."),
    "quarantined": ("quarantined_records", "Records that went to quarantine."),
}
_WORDS: Final = {
    "version": ("version_records", "version", "Records by the version of the library that wrote them."),
    "expiry": ("expiry_journals", "expires", "Journals that were written to, by how long they live."),
}
_TIMES: Final = {
    "replication": ("replicator_replication_latency", ("topic", "type"), "From a record's time to its commit."),
    "delivery": ("replicator_delivery_latency", ("topic", "type"), "From a record's time to when it was read."),
    "round": ("replicator_round", ("topic",), "From reading a slice to its commit."),
    "store": ("journal_replica_latency", ("topic", "type"), "How long the store took."),
}
_MICROS: Final = 1_000_000

Labelled: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values with their labels."""


@dataclass(frozen=True, slots=True)
class LagReading:
    """What waits in each partition, and how long ago that was read."""

    age_seconds: float
    records: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class PipelineReading:
    """How a job is at the moment, by topic; of `measures` there are only some for some jobs."""

    job: str
    is_running: bool = False
    records: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    offsets: Mapping[Place, int] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    last_slice_age: float | None = None
    lag: LagReading | None = None
    measures: Mapping[str, Measures] = field(default_factory=dict)


class JobMetrics(MetricsRegistry):
    """The metrics of a job; `read` is called at each scrape and must not block."""

    def __init__(self, read: Callable[[], PipelineReading]) -> None:
        super().__init__(PipelineCollector(read))


class PipelineCollector(Collector):
    """Turns a reading into metrics."""

    def __init__(self, read: Callable[[], PipelineReading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape."""
        reading = self._read()
        yield from _of_the_job(reading)
        if reading.measures:
            yield from _of_the_replicator(reading.measures)


def _of_the_job(reading: PipelineReading) -> Iterator[Metric]:
    job = reading.job
    yield _gauge("pipeline_running", "Whether the job runs.", ("job",), [((job,), reading.is_running)])
    yield _counter(
        "pipeline_records",
        "Records by what became of them.",
        ("job", "topic", "outcome"),
        (((job, topic, name), number) for topic, found in reading.records.items() for name, number in found.items()),
    )
    places = ("job", "topic", "partition")
    offsets = (((job, topic, str(number)), offset) for (topic, number), offset in reading.offsets.items())
    yield _gauge("pipeline_next_offset", "Where a partition goes on.", places, offsets)
    phases = (((job, phase), seconds) for phase, seconds in reading.phases.items())
    yield _counter("pipeline_phase_seconds", "Where the time goes.", ("job", "phase"), phases)
    if reading.last_slice_age is not None:
        age = [((job,), reading.last_slice_age)]
        yield _gauge("pipeline_last_slice_age_seconds", "Since a slice was applied.", ("job",), age)
    if reading.lag is not None:
        waiting = (((job, topic, str(number)), behind) for (topic, number), behind in reading.lag.records.items())
        yield _gauge("pipeline_lag_records", "Offsets that wait.", places, waiting)
        yield _gauge("pipeline_lag_age_seconds", "How old that is.", ("job",), [((job,), reading.lag.age_seconds)])


def _of_the_replicator(measures: Mapping[str, Measures]) -> Iterator[Metric]:
    for name, (ours, meaning) in _COUNTS.items():
        counts = (((topic,), found.get(name, 0)) for topic, found in measures.items())
        yield _counter(f"replicator_{ours}", meaning, ("topic",), counts)
    for name, (ours, label, meaning) in _WORDS.items():
        words = (((topic, word), number) for topic, found in measures.items() for word, number in under(found, name))
        yield _counter(f"replicator_{ours}", meaning, ("topic", label), words)
    for name, (ours, labels, meaning) in _TIMES.items():
        times = {topic: read_histograms(found, name) for topic, found in measures.items()}
        yield _histogram(f"{ours}_seconds", meaning, labels, times, BOUNDS, _MICROS)
    sizes = {topic: read_histograms(found, "round_records", COUNT_BOUNDS) for topic, found in measures.items()}
    yield _histogram("replicator_round_records", "Records of a slice.", ("topic",), sizes, COUNT_BOUNDS, 1)


def _histogram(
    name: str,
    meaning: str,
    labels: Sequence[str],
    found: Mapping[str, Mapping[str, Histogram]],
    bounds: Sequence[float],
    unit: int,
) -> Metric:
    family = HistogramMetricFamily(f"inorder_{name}", meaning, labels=labels)
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    for topic, by_word in found.items():
        for word, spread in by_word.items():
            values = (topic, word)[: len(labels)]
            buckets = list(zip(names, map(float, accumulate(spread.counts)), strict=True))
            family.add_metric(values, buckets, spread.total / unit)
    return family


def _gauge(name: str, meaning: str, labels: Sequence[str], values: Labelled) -> Metric:
    return _filled(GaugeMetricFamily(f"inorder_{name}", meaning, labels=labels), values)


def _counter(name: str, meaning: str, labels: Sequence[str], values: Labelled) -> Metric:
    return _filled(CounterMetricFamily(f"inorder_{name}", meaning, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Labelled) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(labels, value)
    return family
