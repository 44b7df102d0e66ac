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
| `inorder_pipeline_waiting_seconds{topic,partition}`      | for how long a partition waits because its table refuses |
|                                                          | most records; only partitions that wait have it |
| `inorder_pipeline_phase_seconds_total{phase}`            | where the time goes |
| `inorder_pipeline_last_slice_age_seconds`                | how long ago a slice was applied |
| `inorder_pipeline_lag_records{topic,partition}`          | offsets between a partition's end and what is applied |
| `inorder_pipeline_lag_age_seconds`                       | how old these are; it grows while Kafka or the store is |
|                                                          | away |
| `inorder_pipeline_undecided_offsets{topic,partition}`    | offsets between the last stable and the written end of a |
|                                                          | partition: open transactions, and what waits for them |
| `inorder_pipeline_oldest_record_age_seconds{topic,partition}` | how old the oldest record is that is not applied |
| `inorder_pipeline_restarts_total{topic,partition}`       | restarts of what reads a partition; without labels where |
|                                                          | the run itself could not begin |
| `inorder_pipeline_slice_seconds{topic}`                  | how long a slice took, from locking its pointer to the |
|                                                          | commit |
| `inorder_pipeline_slice_records{topic}`                  | records of a slice |
| `inorder_pipeline_refused_records_total{topic,code}`     | records that became dead letters, by the reason |
| `inorder_pipeline_unknown_fields_total{topic,field}`     | records with a field that the mapping does not name; at |
|                                                          | most 20 names, the others as `other` |
| `inorder_pipeline_dead_letters{pipeline,code}`           | dead letters that are there now |
| `inorder_pipeline_stale_records{topic,partition}`        | records older than their rows, since the pointer was |
|                                                          | created: one key is in several partitions, or pointers |
|                                                          | were lost |

Health fails where nothing of a partition is applied while what reads it fails again and again (`Restarts`): the log has
the cause, and nothing else would show it. One restart is no sign of anything.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import TracebackType
from typing import Final, Self, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from inorder.engines.measures import BOUNDS, COUNT_BOUNDS, Histogram, absorb, read_histograms, under
from inorder.engines.progress import FIGURES
from inorder.engines.slice_work import Measures, SliceOutcome
from inorder.engines.survey import Backlog
from inorder.model.errors import GuaranteeError, InorderError, MassRefusalError
from inorder.model.partitioning import Place
from inorder.observe.endpoint import Endpoint, PeriodicReader, ServerChecks
from inorder.observe.metrics import MetricsRegistry

Lag = Mapping[Place, int]
Clock = Callable[[], float]

ENDLESS_RESTARTS: Final = 5
ENDLESS_SECONDS: Final = 30.0
"""So many restarts over so long a time, without a slice, are no passing failure; pauses in between are 5 s at most."""
QUIET_SECONDS: Final = 120.0
"""After so long without a restart the partition counts as running, whether it has had a record or not."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Restarts of what reads a partition, one soon after the other, with no slice in between."""

    count: int
    first: float
    last: float
    error: str

    @staticmethod
    def after(before: Restarts | None, now: float, error: str) -> Restarts:
        if before is None or now - before.last > QUIET_SECONDS:
            return Restarts(1, now, now, error)
        return Restarts(before.count + 1, before.first, now, error)

    def are_endless(self, now: float) -> bool:
        lasted, quiet = self.last - self.first, now - self.last
        return self.count >= ENDLESS_RESTARTS and lasted >= ENDLESS_SECONDS and quiet <= QUIET_SECONDS


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
        self._restarts: Counter[Place] = Counter()
        self._restarting: dict[Place, Restarts] = {}
        self._waiting: dict[Place, tuple[float, str]] = {}

    def applied(self, outcome: SliceOutcome) -> None:
        """Adds an outcome."""
        with self._lock:
            figures = {name: getattr(outcome, name) for name in FIGURES if name != "read"}
            self._records.setdefault(outcome.topic, Counter()).update(figures)
            self._offsets[outcome.topic, outcome.partition] = outcome.next_offset
            self._waiting.pop((outcome.topic, outcome.partition), None)
            if outcome.measures:
                absorb(self._measures.setdefault(outcome.topic, {}), outcome.measures)
            self._restarting.pop((outcome.topic, outcome.partition), None)
            self._last = self._clock()

    def spent(self, phases: Mapping[str, float]) -> None:
        """Adds the seconds of some phases."""
        with self._lock:
            self._phases.update(phases)

    def stopped(self, place: Place, error: GuaranteeError) -> None:
        """Remembers why a partition is stopped."""
        with self._lock:
            self._stopped[place] = error.message

    def waits(self, place: Place, error: MassRefusalError) -> None:
        """Remembers why a partition waits, and since when."""
        with self._lock:
            since, _ = self._waiting.get(place, (self._clock(), ""))
            self._waiting[place] = since, error.message

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Counts restarts, and how many of them there were since a slice was applied."""
        with self._lock:
            self._restarts.update(places or [_NO_PLACE])
            now = self._clock()
            for place in places:
                self._restarting[place] = Restarts.after(self._restarting.get(place), now, error.message)

    @property
    def trouble(self) -> str:
        """Which partitions are stopped, wait for their table, or restart for ever, and why; empty where none is."""
        with self._lock:
            now = self._clock()
            stopped = {
                place: f"{place[0]}[{place[1]}] is stopped: {message}" for place, message in self._stopped.items()
            }
            waiting = {place: message for place, (_, message) in self._waiting.items()}
            endless = {
                (topic, number): f"{topic}[{number}] was restarted {one.count} times"
                f" and nothing of it was applied: {one.error}"
                for (topic, number), one in self._restarting.items()
                if one.are_endless(now)
            }
        worst = (stopped, "are stopped"), (waiting, "wait"), (endless, "are restarted again and again")
        for found, fate in worst:
            if found:
                more = f" And {len(found) - 1} more partitions {fate}." if len(found) > 1 else ""
                return f"{next(iter(found.values()))}{more}"
        return ""

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
                restarts=dict(self._restarts),
                measures={topic: dict(found) for topic, found in self._measures.items()},
                waiting={place: self._clock() - since for place, (since, _) in self._waiting.items()},
            )


class JobService:
    """Serves a job's health and metrics for as long as the block lasts; without an address it does nothing."""

    def __init__(
        self,
        address: tuple[str, int] | None,
        job: str,
        lag: Callable[[], Lag | Backlog],
        checks: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        """`lag` reads what waits in each partition, `checks` ask each server; both may block, and raise."""
        self.hindrance = ""
        """Why the job cannot work, where the job itself sets it."""
        self.listener = JobFigures(job)
        self._job = job
        self._is_running = False
        self._lag = PeriodicReader("lag", lag)
        self._checks = ServerChecks(checks or {})
        metrics = JobMetrics(self.reading)
        self.registry = metrics.registry if address else None
        """For the job's own figures, where metrics are served."""
        self._endpoint = Endpoint(address, self.trouble, metrics.text, self._checks.troubles) if address else None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where health and metrics are served, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def reading(self) -> PipelineReading:
        """How the job is, from memory."""
        if (last := self._lag.last) is None:
            return self.listener.reading(is_running=self._is_running, lag=None)
        age, found = last
        lag = LagReading(age, found if isinstance(found, Backlog) else Backlog(found))
        return self.listener.reading(is_running=self._is_running, lag=lag)

    def trouble(self) -> str:
        """Why the job does not work, in a sentence; empty while it works."""
        if not self._is_running:
            return self.hindrance or f"The job {self._job} does not run."
        return self.hindrance or self.listener.trouble or self._lag.failure

    def __enter__(self) -> Self:
        if self._endpoint is not None:
            self._endpoint.start()
            self._checks.start()
            self.watch_lag()
        self.set_running(True)
        return self

    def watch_lag(self) -> None:
        """Reads the lag from now on, until the block ends."""
        self._lag.start()

    def set_running(self, is_running: bool, hindrance: str = "") -> None:
        """Says whether the job runs and, if not, why."""
        self._is_running, self.hindrance = is_running, hindrance

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        self._lag.stop()
        self._checks.stop()
        if self._endpoint is not None:
            self._endpoint.stop()


class JobServices:
    """Serves several jobs of one application at one address; each fails the health of all."""

    def __init__(
        self,
        address: tuple[str, int] | None,
        lags: Mapping[str, Callable[[], Lag | Backlog]],
        checks: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        self._checks = ServerChecks(checks or {})
        self._services = {job: JobService(None, job, lag) for job, lag in lags.items()}
        metrics = JobMetrics(*(service.reading for service in self._services.values()))
        self._endpoint = Endpoint(address, self.trouble, metrics.text, self._checks.troubles) if address else None

    @property
    def listeners(self) -> Mapping[str, JobFigures]:
        return {job: service.listener for job, service in self._services.items()}

    @property
    def address(self) -> tuple[str, int] | None:
        """Where health and metrics are served, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def began(self, job: str) -> None:
        self._services[job].set_running(True)

    def ended(self, job: str, reason: str) -> None:
        self._services[job].set_running(False, reason)

    def trouble(self) -> str:
        """Why jobs do not work, a sentence for each; empty while all work."""
        return " ".join(filter(None, (service.trouble() for service in self._services.values())))

    def __enter__(self) -> Self:
        if self._endpoint is not None:
            self._endpoint.start()
            self._checks.start()
            for service in self._services.values():
                service.watch_lag()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._services.values():
            service.__exit__(kind, error, trace)
        self._checks.stop()
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
Histograms: TypeAlias = Mapping[tuple[str, ...], Mapping[str, Histogram]]
"""By the first labels, then by a word that may be the last one."""


@dataclass(frozen=True, slots=True)
class LagReading:
    """What waits in each partition, and how long ago that was read."""

    age_seconds: float
    backlog: Backlog


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
    restarts: Mapping[Place, int] = field(default_factory=dict)
    measures: Mapping[str, Measures] = field(default_factory=dict)
    waiting: Mapping[Place, float] = field(default_factory=dict)
    """For how many seconds partitions wait for their table; only those that do."""


class JobMetrics(MetricsRegistry):
    """The metrics of one or several jobs; each of `reads` is called at each scrape and must not block."""

    def __init__(self, *reads: Callable[[], PipelineReading]) -> None:
        super().__init__(PipelineCollector(*reads))


class PipelineCollector(Collector):
    """Turns the readings of some jobs into metrics."""

    def __init__(self, *reads: Callable[[], PipelineReading]) -> None:
        self._reads = reads

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape; a metric that several jobs have is listed once."""
        found: dict[str, Metric] = {}
        for family in (family for read in self._reads for family in _metrics_of(read())):
            found.setdefault(family.name, family)
            if found[family.name] is not family:
                found[family.name].samples += family.samples
        yield from found.values()


def _metrics_of(reading: PipelineReading) -> Iterator[Metric]:
    yield from _of_the_job(reading)
    if reading.measures:
        yield from _of_slices(reading.job, reading.measures)
    # A job measures the same for all its topics, so journals are recognised by what is measured of them.
    if journals := {topic: found for topic, found in reading.measures.items() if not _COUNTS.keys().isdisjoint(found)}:
        yield from _of_the_replicator(journals)


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
    waiting = (((job, topic, str(number)), seconds) for (topic, number), seconds in reading.waiting.items())
    yield _gauge("pipeline_waiting_seconds", "For how long a partition waits for its table.", places, waiting)
    phases = (((job, phase), seconds) for phase, seconds in reading.phases.items())
    yield _counter("pipeline_phase_seconds", "Where the time goes.", ("job", "phase"), phases)
    if reading.last_slice_age is not None:
        age = [((job,), reading.last_slice_age)]
        yield _gauge("pipeline_last_slice_age_seconds", "Since a slice was applied.", ("job",), age)
    restarts = (((job, topic, _number(number)), count) for (topic, number), count in reading.restarts.items())
    yield _counter("pipeline_restarts", "Restarts of what reads a partition.", places, restarts)
    if reading.lag is not None:
        yield from _of_the_backlog(job, reading.lag.backlog)
        yield _gauge("pipeline_lag_age_seconds", "How old that is.", ("job",), [((job,), reading.lag.age_seconds)])


_NO_PLACE: Final[Place] = ("", -1)
"""Of a run that could not begin."""


def _number(partition: int) -> str:
    return "" if partition < 0 else str(partition)


def _of_the_backlog(job: str, found: Backlog) -> Iterator[Metric]:
    meanings: tuple[tuple[str, str, Mapping[Place, float]], ...] = (
        ("lag_records", "Offsets that wait.", found.records),
        ("undecided_offsets", "Offsets of open transactions, and behind them.", found.undecided),
        ("oldest_record_age_seconds", "Age of the oldest record that is not applied.", found.oldest_seconds),
        ("stale_records", "Records that were older than their rows.", found.stale),
    )
    for name, meaning, by_place in meanings:
        values = (((job, topic, str(number)), value) for (topic, number), value in by_place.items())
        yield _gauge(f"pipeline_{name}", meaning, ("job", "topic", "partition"), values)
    letters = (((job, *about), number) for about, number in found.dead_letters.items())
    yield _gauge("pipeline_dead_letters", "Dead letters that are there now.", ("job", "pipeline", "code"), letters)


def _of_slices(job: str, measures: Mapping[str, Measures]) -> Iterator[Metric]:
    """What every job measures of its slices, and of the records that it refused."""
    refused = (
        ((job, topic, code), number) for topic, found in measures.items() for code, number in under(found, "refused")
    )
    yield _counter("pipeline_refused_records", "Records that became dead letters.", ("job", "topic", "code"), refused)
    unknown = (
        ((job, topic, name), number) for topic, found in measures.items() for name, number in under(found, "unknown")
    )
    yield _counter("pipeline_unknown_fields", "Records with such a field.", ("job", "topic", "field"), unknown)
    labels = ("job", "topic")
    times: Histograms = {(job, topic): read_histograms(found, "slice") for topic, found in measures.items()}
    yield _histogram("pipeline_slice_seconds", "How long a slice took.", labels, times, BOUNDS, _MICROS)
    sizes: Histograms = {
        (job, topic): read_histograms(found, "slice_records", COUNT_BOUNDS) for topic, found in measures.items()
    }
    yield _histogram("pipeline_slice_records", "Records of a slice.", labels, sizes, COUNT_BOUNDS, 1)


def _of_the_replicator(measures: Mapping[str, Measures]) -> Iterator[Metric]:
    for name, (ours, meaning) in _COUNTS.items():
        counts = (((topic,), found.get(name, 0)) for topic, found in measures.items())
        yield _counter(f"replicator_{ours}", meaning, ("topic",), counts)
    for name, (ours, label, meaning) in _WORDS.items():
        words = (((topic, word), number) for topic, found in measures.items() for word, number in under(found, name))
        yield _counter(f"replicator_{ours}", meaning, ("topic", label), words)
    for name, (ours, labels, meaning) in _TIMES.items():
        times: Histograms = {(topic,): read_histograms(found, name) for topic, found in measures.items()}
        yield _histogram(f"{ours}_seconds", meaning, labels, times, BOUNDS, _MICROS)
    sizes: Histograms = {
        (topic,): read_histograms(found, "round_records", COUNT_BOUNDS) for topic, found in measures.items()
    }
    yield _histogram("replicator_round_records", "Records of a slice.", ("topic",), sizes, COUNT_BOUNDS, 1)


def _histogram(
    name: str,
    meaning: str,
    labels: Sequence[str],
    found: Histograms,
    bounds: Sequence[float],
    unit: int,
) -> Metric:
    family = HistogramMetricFamily(f"inorder_{name}", meaning, labels=labels)
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    for about, by_word in found.items():
        for word, spread in by_word.items():
            values = (*about, word)[: len(labels)]
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
