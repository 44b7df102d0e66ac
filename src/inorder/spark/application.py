"""Several jobs in one Spark application: `inorder pipeline run relay,upsert,replicate`.

One driver and one Spark context. Each job runs on a thread of its own, on a session of its own, as it would run alone;
jobs share nothing but the cores. Engines wait out failures of the environment themselves. What ends a job here is what
would end its command.

| a job                                     | what follows                                                         |
|-------------------------------------------|----------------------------------------------------------------------|
| ends with an error                        | it is started again alone, after 1 s, then 2 s, up to 60 s; the      |
|                                           | others go on                                                         |
| ends with a violated guarantee            | it stays ended, since a new start has not seen the pointers that     |
|                                           | this one saw; the others go on                                       |
| finds that Spark was stopped              | all end: a context cannot be revived                                 |
| ends by itself, with `once`               | it is done, or has failed; the others go on                          |

A stop reaches all jobs at once. Each finishes its slice or batch, then Spark is stopped. The result has the last error
of each job that has ended with one, or was waiting for its next start; a command ends with the gravest of them.

**Cores.** A resident task and a relay hold a core for as long as they run. Such jobs, and those of `micro-batch`
together, get equal parts of the cores: else the first would take all of them, and the others would wait for ever.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from inorder.app import App
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.engines.running import SparkChoice, describe
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError
from inorder.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("inorder.pipeline")

Job = Literal["relay", "upsert", "replicate", "expire"]
JOBS: Final[tuple[Job, ...]] = ("relay", "upsert", "replicate", "expire")
"""Those that run until they are stopped."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0

Totals = dict[str, Any]
RunJob = Callable[[threading.Event], Totals]
"""Runs a job until the event is set; returns its totals."""


class Observer(Protocol):
    """Follows the jobs of an application; called on their threads."""

    def began(self, job: str) -> None: ...

    def ended(self, job: str, reason: str) -> None:
        """A job has ended, for now or for good; `reason` is empty where it was asked to."""


class _NullObserver:
    def began(self, job: str) -> None: ...

    def ended(self, job: str, reason: str) -> None: ...


NULL_OBSERVER: Final[Observer] = _NullObserver()


@dataclass(frozen=True, slots=True)
class Finished:
    """How the jobs of an application have ended."""

    totals: Mapping[str, Totals]
    """Of each job since its last start; empty where that failed."""
    errors: Mapping[str, Exception] = field(default_factory=dict)

    def raise_gravest(self) -> None:
        """Raises the error that decides about the exit code, if there is any."""
        from inorder.engines.session import error_rank

        if self.errors:
            raise min(self.errors.values(), key=error_rank)


class Next(Enum):
    """What follows when a job has ended."""

    DONE = "done"
    FAILED = "failed"
    RESTART = "restart"
    END_ALL = "end all"


def next_step(error: Exception | None, *, once: bool, stopping: bool, spark_is_stopped: bool) -> Next:
    """Decides what follows the end of a job."""
    if error is None:
        return Next.DONE if once or stopping else Next.RESTART
    if spark_is_stopped:
        return Next.END_ALL
    if once or stopping or isinstance(error, GuaranteeError):
        return Next.FAILED
    return Next.RESTART


class Supervisor:
    """Keeps jobs running, each by itself."""

    def __init__(
        self,
        jobs: Mapping[str, RunJob],
        *,
        once: bool = False,
        observer: Observer = NULL_OBSERVER,
        spark_is_stopped: Callable[[], bool] = lambda: False,
        first_pause: float = FIRST_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._once = once
        self._observer = observer
        self._spark_is_stopped = spark_is_stopped
        self._first_pause = first_pause
        self._clock = clock
        self._totals: dict[str, Totals] = {name: {} for name in jobs}
        self._errors: dict[str, Exception] = {}

    def run(self, stop: threading.Event) -> Finished:
        """Blocks until `stop` is set and all jobs have stopped, or until all have ended for good. It may set `stop`."""
        threads = [
            threading.Thread(target=self._keep_running, args=(name, run, stop), name=f"job-{name}", daemon=True)
            for name, run in self._jobs.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Finished(self._totals, self._errors)

    def _keep_running(self, name: str, run: RunJob, stop: threading.Event) -> None:
        from inorder.engines.session import Backoff

        backoff = Backoff(self._first_pause, LONGEST_PAUSE_SECONDS)
        while not stop.is_set():
            began = self._clock()
            error = self._run_once(name, run, stop)
            match self._judge(error, stop):
                case Next.DONE:
                    return
                case Next.FAILED:
                    log.error("application.job_failed", extra={"job": name, "error": str(error)})
                    return
                case Next.END_ALL:
                    log.error("application.ends", extra={"job": name, "error": str(error)})
                    stop.set()
                    return
                case Next.RESTART:
                    pause = backoff.after(progress=self._clock() - began > LONGEST_PAUSE_SECONDS)
                    fields = {"job": name, "pause_seconds": round(pause, 3), "error": str(error or "It ended.")}
                    log.warning("application.job_restart", extra=fields)
                    stop.wait(pause)

    def _judge(self, error: Exception | None, stop: threading.Event) -> Next:
        is_stopped = error is not None and self._spark_is_stopped()
        return next_step(error, once=self._once, stopping=stop.is_set(), spark_is_stopped=is_stopped)

    def _run_once(self, name: str, run: RunJob, stop: threading.Event) -> Exception | None:
        self._observer.began(name)
        try:
            self._totals[name] = run(stop)
        except Exception as error:  # whatever ends a job must not end the others
            if not isinstance(error, InorderError):
                log.exception("application.job_broken", extra={"job": name})
            self._errors[name] = error
            self._observer.ended(name, f"The job {name} has failed: {error}")
            return error
        self._errors.pop(name, None)
        self._observer.ended(name, "" if stop.is_set() or self._once else f"The job {name} has ended.")
        return None


# What the jobs need of Spark.


def slots_needed(settings: Settings, jobs: Sequence[str]) -> int:
    """How many cores the jobs need at least: one for each that holds some, and one for micro-batches together."""
    slices = sum(job in ("upsert", "replicate") for job in jobs)
    is_resident = settings.pipeline.engine == "resident"
    return ("relay" in jobs) + (slices if is_resident else min(slices, 1))


def local_choice(choice: SparkChoice, needed: int, cores: int | None = None) -> SparkChoice:
    """Where neither the settings nor the caller choose a Spark: a local one, with a slot for each job at least.

    >>> local_choice(SparkChoice(), 3, cores=2).master
    'local[3,4]'
    """
    from inorder.engines.session import is_submitted

    if choice.master is not None or choice.session is not None or is_submitted():
        return choice
    return replace(choice, master=f"local[{max(needed, cores or os.cpu_count() or 1)},4]")


def require_slots(master: str, slots: int, needed: int) -> None:
    """Refuses a local Spark with too few slots; a cluster may get more of them later."""
    if master.startswith("local") and slots < needed:
        raise ConfigurationError(
            f"Spark has {slots} slots at {master}, and the jobs hold {needed} at least.",
            hint=f"Set pipeline.master to local[{needed},4] or more, or run fewer jobs in one application.",
        )


def run_application(
    settings: Settings,
    jobs: Sequence[str],
    *,
    spark: SparkSession | None = None,
    once: bool = False,
    stop: threading.Event,
    listeners: Mapping[str, Listener] | None = None,
    observer: Observer = NULL_OBSERVER,
) -> Finished:
    """Runs jobs in one Spark application until `stop` is set; with `once`, until each has read to the end."""
    checked = check_jobs(jobs)
    from inorder.engines.resident import count_slots
    from inorder.engines.session import is_spark_stopped, open_session

    heard, needed = listeners or {}, slots_needed(settings, jobs)
    choice = local_choice(App(settings, spark=spark).spark_choice, needed)
    reads_by_spark = settings.pipeline.engine == "micro-batch" and not {"upsert", "replicate"}.isdisjoint(jobs)
    writes_delta = "upsert" in jobs and any(target.target for target in settings.pipeline.targets)
    with open_session(
        f"inorder {', '.join(jobs)}", choice, needs_kafka=reads_by_spark, needs_delta=writes_delta, has_ui=not once
    ) as session:
        require_slots(session.sparkContext.master or "", count_slots(session), needed)
        log.info("pipeline.spark", extra=describe(session))
        runs: dict[str, RunJob] = {
            job: partial(_run, settings, session, needed, job, once, heard.get(job, NULL_LISTENER)) for job in checked
        }
        supervisor = Supervisor(runs, once=once, observer=observer, spark_is_stopped=is_spark_stopped)
        return supervisor.run(stop)


def check_jobs(jobs: Sequence[str]) -> list[Job]:
    """The jobs by these names; refuses what cannot run in one application."""
    if unknown := [job for job in jobs if job not in JOBS]:
        raise ConfigurationError(
            f"The job {unknown[0]!r} does not run beside others.", hint=f"Those that do: {', '.join(JOBS)}."
        )
    if repeated := [job for job in JOBS if list(jobs).count(job) > 1]:
        raise ConfigurationError(f"The job {repeated[0]!r} is named twice.", hint="Name each job once.")
    return [job for job in JOBS if job in jobs]


def _run(
    settings: Settings,
    spark: SparkSession,
    shared_by: int,
    job: Job,
    once: bool,
    listener: Listener,
    stop: threading.Event,
) -> Totals:
    """One attempt of a job, with connections of its own."""
    with App(settings, spark=spark, spark_shared_by=shared_by) as app:
        return run_one(app, job, once=once, stop=stop, listener=listener)


def run_one(app: App, job: Job, *, once: bool, stop: threading.Event, listener: Listener) -> Totals:
    """Runs a job of these settings."""
    match job:
        case "relay":
            return app.run_relay(once=once, stop=stop)
        case "upsert":
            return app.run_upsert(once=once, stop=stop, listener=listener)
        case "replicate":
            return app.run_replicate(once=once, stop=stop, listener=listener)
        case "expire":
            return app.run_expire(once=once, stop=stop)
