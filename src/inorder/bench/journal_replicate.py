"""`inorder bench journal --replicate`: how fast the job `replicate` fills a store, and how soon an append is in it.

Two phases for each store and engine, on a topic of their own. *Backlog*: all of it is there when the process starts;
its rate counts from the first step of `pointer2` to the last; the start is reported separately. *Live*: one event an
append at a steady rate, each timed from the moment it was due until `pointer2` covers it. The offset moves last in
every store, so by then a reader has the event.

Afterwards every journal is read back from the store, by the code that serves readers.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from inorder.bench.figures import DrainRate, cpu_seconds, difference, drain_of, latency_of
from inorder.bench.load import Schedule, number_of
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, LIVE_SLACK_SECONDS
from inorder.bench.place import BenchPlace
from inorder.bench.report import ReadBackCheck, machine_line, show_verdict
from inorder.bench.watching import watch
from inorder.embedded.stack import Service
from inorder.journal.replication.store_port import JournalReplica
from inorder.journal.stores.opening import JournalReplicas, open_journal_store
from inorder.journal.stores.ports import EventualJournal
from inorder.model.errors import TransientError
from inorder.model.journal import Key
from inorder.testing.checker import Event, check_delivery

EVENTS: Final[Mapping[str, int]] = {"postgres": 400_000, "cassandra": 100_000}
ENGINES: Final = ("resident", "micro-batch")
OFFSET_LOOK_SECONDS: Final = 0.002

_JOURNAL = """
[journal]
store = "{store}"
topic_prefixes = ["{topic}"]
"""


@dataclass(frozen=True, slots=True)
class ReplicateOptions:
    """Which stores and engines, and how much."""

    stores: tuple[str, ...] = ("postgres", "cassandra")
    engines: tuple[str, ...] = ENGINES
    events: int | None = None
    """Of a backlog; None: what suits the store."""
    batch: int = 10
    journals: int = 400
    live_journals: int = 50
    schedule: Schedule = field(default_factory=lambda: Schedule(rate=500, seconds=10.0, warm_seconds=5.0))

    @classmethod
    def of(cls, store: str, engine: str, events: int | None, seconds: float) -> ReplicateOptions:
        """By the names of the command line; `both` is all of them."""
        stores, engines = tuple(EVENTS) if store == "both" else (store,), ENGINES if engine == "both" else (engine,)
        return cls(stores, engines, events, schedule=Schedule(500, seconds, warm_seconds=5.0))

    def rounds(self, store: str) -> int:
        """How often each journal of the backlog is appended to."""
        return max(1, (self.events or EVENTS[store]) // (self.journals * self.batch))


@dataclass(frozen=True, slots=True)
class ReplicateTrial:
    """What one engine did with one store."""

    store: str
    engine: str
    events: int
    backlog: DrainRate
    cpu_us: Mapping[str, float | None]
    """Processor time for one event, of the job with all its processes and of the store."""
    latency_ms: Sequence[float]
    check: ReadBackCheck


@dataclass(frozen=True, slots=True)
class Covered:
    """How far `pointer2` had come at a moment of the monotonic clock, by partition."""

    at_ns: int
    offsets: Mapping[int, int]


def bench_replicate(place: BenchPlace, options: ReplicateOptions) -> list[ReplicateTrial]:
    """Every store with every engine, one after another."""
    return [_Trial(place, options, store, engine).run() for store in options.stores for engine in options.engines]


def latencies(appended: Iterable[Sequence[int]], looks: Sequence[Covered]) -> list[float]:
    """Milliseconds from due to covered, for `[partition, offset, due]` of appends that all are covered in the end."""
    reached = {
        partition: [look.offsets.get(partition, -1) for look in looks] for partition in {each[0] for each in appended}
    }
    return [(looks[bisect_left(reached[partition], offset)].at_ns - due) / 1e6 for partition, offset, due in appended]


def check_store(store: EventualJournal, topic: str, expected: Mapping[str, int]) -> ReadBackCheck:
    """Reads journals of so many events back and compares them, event by event."""
    found: list[Event] = []
    for id in expected:
        key = Key(id, topic)
        head = store.pointer(key)
        found += [(id, number_of(each.event.payload)) for each in store.read(key, head, 1)] if head else []
    wanted = ((id, number) for id, last in expected.items() for number in range(1, last + 1))
    return ReadBackCheck(len(found), len(set(found)), check_delivery(wanted, found))


class _Trial:
    """One store and one engine, on a topic of their own."""

    def __init__(self, place: BenchPlace, options: ReplicateOptions, store: str, engine: str) -> None:
        self._place = place
        self._options = options
        self._store = store
        self._engine = engine
        self._topic = place.topic(f"replicate-{store}-{engine}")
        self._url = place.store_url(store)
        self._config = place.folder / f"{self._topic}.toml"
        self._records = options.rounds(store) * options.journals
        self._events = self._records * options.batch

    def run(self) -> ReplicateTrial:
        place, options = self._place, self._options
        settings = place.config.read_text() + _JOURNAL.format(store=self._url, topic=self._topic)
        self._config.write_text(settings)
        with closing(open_journal_store(self._url)) as store, closing(JournalReplicas(self._url)()) as replica:
            store.install()
            self._fill()
            command = ("pipeline", "run", "replicate", "--engine", self._engine)
            with place.running(place.service(*command, config=self._config)) as job:
                backlog, cpu = self._catch_up(job, replica)
                latency = self._live(job, replica)
            check = check_store(store, self._topic, self._expected())
        rate = backlog.records_per_second or 0
        place.say(f"{self._topic}: {rate:,.0f} events a second, {sorted(latency)[len(latency) // 2]:,.1f} ms")
        return ReplicateTrial(
            self._store, self._engine, self._events, backlog, cpu, latency[options.schedule.warm :], check
        )

    def _fill(self) -> None:
        options = self._options
        self._place.say(f"Appending {self._events:,} events to {options.journals} journals of {self._topic} …")
        sizes = {"rounds": options.rounds(self._store), "batch": options.batch, "journals": options.journals}
        with self._place.worker("append-backlog", config=str(self._config), topic=self._topic, **sizes) as appender:
            appender.result(FILL_CAP_SECONDS)
        self._place.watching.execute("CHECKPOINT")

    def _catch_up(self, job: Service, replica: JournalReplica) -> tuple[DrainRate, dict[str, float | None]]:
        """Processor time counts from the first step, too, and without what came before it."""
        started, begun = time.monotonic(), dict[str, float | None]()

        def moved() -> int:
            count = covered(replica.offsets(self._topic))
            if count and not begun:
                begun.update(self._cpu(job), records=count)
            return count

        looks = watch(moved, lambda found: found >= self._records, job.check, DRAIN_CAP_SECONDS)
        events = (self._records - (begun.pop("records") or 0)) * self._options.batch
        used = {name: difference(now, begun[name]) for name, now in self._cpu(job).items()}
        each = {name: None if spent is None or not events else 1e6 * spent / events for name, spent in used.items()}
        return drain_of(looks, self._events, started), each

    def _cpu(self, job: Service) -> dict[str, float | None]:
        return {"job": cpu_seconds(job.pid), "store": cpu_seconds(self._place.server_pid(self._store))}

    def _live(self, job: Service, replica: JournalReplica) -> list[float]:
        schedule = self._options.schedule
        self._place.say(f"Appending {schedule.rate} times a second for {schedule.lasts:.0f} s …")
        total, cap = self._records + schedule.total, schedule.lasts + LIVE_SLACK_SECONDS
        task = {"config": str(self._config), "topic": self._topic, "journals": self._options.live_journals}
        when = {"rate": schedule.rate, "seconds": schedule.seconds, "warm_seconds": schedule.warm_seconds}
        with self._place.worker("append-live", **task, **when) as appender:
            looks = see_offsets(lambda: replica.offsets(self._topic), total, job.check, cap)
            return latencies(appender.result(cap)["appended"], looks)

    def _expected(self) -> dict[str, int]:
        """How many events each journal has in the end."""
        options, total = self._options, self._options.schedule.total
        each = options.rounds(self._store) * options.batch
        live = {f"live-{n}": (total - n - 1) // options.live_journals + 1 for n in range(options.live_journals)}
        return {f"id-{n}": each for n in range(options.journals)} | live


def covered(offsets: Mapping[int, int]) -> int:
    """How many records the offsets cover; none was sent in a transaction, so there are no holes."""
    return sum(offset + 1 for offset in offsets.values())


def see_offsets(
    offsets: Callable[[], Mapping[int, int]], total: int, check: Callable[[], Any], cap: float
) -> list[Covered]:
    """Looks every 2 ms until so many records are covered; `check` may raise, and so does the end of the time."""
    looks: list[Covered] = []
    deadline = time.monotonic() + cap
    while not looks or covered(looks[-1].offsets) < total:
        looks.append(Covered(offsets=offsets(), at_ns=time.monotonic_ns()))
        if time.monotonic() > deadline:
            raise TransientError(
                f"Only {covered(looks[-1].offsets)} of {total} records were replicated within {cap:.0f} s.",
                hint="Lower the rate, or look for other work on this machine.",
            )
        check()
        threading.Event().wait(OFFSET_LOOK_SECONDS)
    return looks


# The report: a line for each store and engine, with the targets beside the figures.

EVENTS_PER_SECOND: Mapping[tuple[str, str], float] = {
    ("postgres", "resident"): 60_000,
    ("cassandra", "resident"): 15_000,
}
LATENCY_P50_MS: Mapping[str, float] = {"resident": 20, "micro-batch": 400}
_HEADINGS = (
    "store", "engine", "events a second", "aim", "startup s", "µs job", "µs store", "p50 ms", "aim", "p99 ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplicateReport:
    """The object that `--json` prints."""

    options: ReplicateOptions
    trials: Sequence[ReplicateTrial]
    machine: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the stores have every event once, in order."""
        return all(trial.check.verdict.holds for trial in self.trials)

    @property
    def checks(self) -> dict[str, ReadBackCheck]:
        """What was read back, by store and engine."""
        return {f"{trial.store}, {trial.engine}": trial.check for trial in self.trials}

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": "journal-replicate",
            "options": asdict(self.options),
            "trials": [_told(trial) for trial in self.trials],
            "checks": {"hold": self.holds},
            "machine": dict(self.machine),
        }


def show_replicate(console: Console, report: ReplicateReport) -> None:
    """Figures and aims, then the machine and the verdict."""
    table = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in ("store", "engine") else "right")
    for trial in report.trials:
        table.add_row(trial.store, trial.engine, *_cells(_told(trial)))
    console.print(table, highlight=False)
    options = report.options
    console.print(
        f"Appends of {options.batch} events in the backlog, of one at {options.schedule.rate} a second. µs is the"
        " processor time for an event of the backlog.",
        highlight=False,
    )
    console.print(machine_line(report.machine), highlight=False)
    show_verdict(console, report.checks, report.holds)


def _told(trial: ReplicateTrial) -> dict[str, Any]:
    drain = trial.backlog.as_dict()
    return {
        "store": trial.store,
        "engine": trial.engine,
        "events": trial.events,
        "events_per_second": drain["records_per_second"],
        "seconds": drain["seconds"],
        "startup_seconds": drain["startup_seconds"],
        "cpu_us_per_event": {name: None if spent is None else round(spent, 2) for name, spent in trial.cpu_us.items()},
        "latency_ms": latency_of(trial.latency_ms),
        "targets": {
            "events_per_second": EVENTS_PER_SECOND.get((trial.store, trial.engine)),
            "latency_p50_ms": LATENCY_P50_MS.get(trial.engine),
        },
        "check": trial.check.as_dict(),
    }


def _cells(figures: Mapping[str, Any]) -> list[str]:
    cpu, latency, targets = figures["cpu_us_per_event"], figures["latency_ms"], figures["targets"]
    return [
        _cell(figures["events_per_second"], 0),
        _cell(targets["events_per_second"], 0),
        _cell(figures["startup_seconds"], 1),
        _cell(cpu.get("job"), 1),
        _cell(cpu.get("store"), 1),
        _cell(latency.get("p50"), 1),
        _cell(targets["latency_p50_ms"], 0),
        _cell(latency.get("p99"), 1),
    ]


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
