"""How a running job of the pipeline is: what it tells whoever asks for its health or its metrics.

The driver listens at `health.listen`. What tasks have done it hears with the outcomes of their slices; how far behind
they are it asks Kafka and the store, now and then, on a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from inorder.journal.replication.tally import absorb
from inorder.observe.endpoint import Endpoint
from inorder.observe.pipeline_metrics import JobMetrics, LagReading, PipelineReading
from inorder.pipeline.progress import FIGURES
from inorder.ports.partition_reader import Place
from inorder.ports.slice_work import SliceOutcome
from inorder.settings import Settings
from inorder.wiring.watching import Watch

Lag = Mapping[Place, int]
Clock = Callable[[], float]


class JobFigures:
    """A listener that keeps what a job has done, by topic; any thread may look."""

    def __init__(self, job: str, clock: Clock = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, Counter[str]] = {}
        self._offsets: dict[Place, int] = {}
        self._phases: Counter[str] = Counter()
        self._measures: dict[str, dict[str, int]] = {}
        self._last: float | None = None

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
    """Tells how a job is for as long as the block lasts, if `health.listen` says where; else it does nothing."""

    def __init__(self, settings: Settings, job: str, lag: Callable[[], Lag]) -> None:
        """`lag` asks how many offsets wait in each partition; it may block and raise `InorderError`."""
        self.hindrance = ""
        """What hinders the job, where it says so itself."""
        self.listener = JobFigures(job)
        self._job = job
        self._is_running = False
        self._lag = Watch("lag", lag)
        metrics, address = JobMetrics(self.reading), settings.health.address
        self.registry = metrics.registry if address else None
        """For figures of the job's own, if anybody may ask for them."""
        self._endpoint = Endpoint(address, self.trouble, metrics.text) if address else None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where health and metrics are told, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def reading(self) -> PipelineReading:
        """How the job is, from memory."""
        last = self._lag.last
        return self.listener.reading(is_running=self._is_running, lag=None if last is None else LagReading(*last))

    def trouble(self) -> str:
        """Why the job does not work, in a sentence; nothing while it does."""
        if not self._is_running:
            return f"The job {self._job} does not run."
        return self.hindrance or self._lag.failure

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
