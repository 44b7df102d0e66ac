"""A side of the contest: it drains a backlog and carries live records, once a trial.

Every side that reads a table, ours or a peer's, is measured by the same code: the same rows written the same way, the
same readers of the topic, the same reading of processor time.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from inorder.bench.figures import cpu_seconds, difference, drain_of, latency_of
from inorder.bench.load import Load, Schedule
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, START_CAP_SECONDS, RelayOptions
from inorder.bench.place import PARTITIONS, BenchPlace
from inorder.bench.report import Cpu, DrainTrial, LiveTrial, check_begun, check_live, check_values
from inorder.bench.tables import LAYOUTS, TableLayout
from inorder.bench.watching import SeenRecord, VisibleEnd, counted_of, see_records, watch
from inorder.database import sql
from inorder.embedded.stack import Program
from inorder.kafka.readers import read_back

WARM_ROW = Load(rows=1, keys=1)


class Contender(Protocol):
    """What the contest calls on each side; `number` distinguishes trials."""

    name: str

    def drain(self, load: Load, number: int) -> DrainTrial:
        """Carries a backlog from nothing, in a process that is new."""

    def live(self, number: int) -> LiveTrial:
        """Carries live records, in a process that has carried one before."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side, before there are servers."""

    make: Callable[[BenchPlace, RelayOptions], Contender]
    """The side itself, on these servers."""
    set_up: Callable[[], object] = lambda: None
    """Fetches or builds what it consists of; called before anything is started."""
    notes: tuple[str, ...] = ()
    """What must be known to read its figures."""
    postgres: Mapping[str, str] = field(default_factory=dict)
    """Settings that the database needs for it, and then has for both sides."""


class TableReader(ABC):
    """A side that reads an outbox table of its own in a process of its own."""

    name: str
    empties = True
    """Whether rows leave the table when they are published."""
    window_seconds: float | None = None
    """How long a drain is watched from its first visible record on; None: to its end."""

    def __init__(self, place: BenchPlace, options: RelayOptions, layout: TableLayout, table: str) -> None:
        self.place = place
        self.options = options
        self.layout = layout
        self.table = table

    @abstractmethod
    def empty(self) -> None:
        """Empties the table and everything that belongs to it, before every trial."""

    @abstractmethod
    def program(self, load: Load) -> Program:
        """What carries the rows of such a load; not started yet."""

    def is_settled(self) -> bool:
        """Whether nothing is left to do with rows that were carried."""
        return not self.empties or self.place.is_empty(self.table)

    def tidy(self) -> None:  # noqa: B027  most sides leave nothing
        """Removes, after every trial, what would cost the other side."""

    def drain(self, load: Load, number: int) -> DrainTrial:
        """Fills the table, starts the process and watches the topic."""
        topic = self._begin(f"{self.name}-drain-{number}", load)
        try:
            with self.place.running(self.program(load)) as program:
                watching = _Watching(self, program, VisibleEnd(self.place.kafka, topic, PARTITIONS), load)
                looks = watch(watching.count, watching.is_over, program.check, DRAIN_CAP_SECONDS)
                drain = drain_of(looks, watching.records(looks[-1].count), watching.started)
                cpu = watching.cpu(looks[-1].count)
        finally:
            self.tidy()
        values = (record.value for record in read_back(self.place.kafka, topic))
        check = check_values(load, values) if watching.is_whole else check_begun(values)
        return DrainTrial(drain, watching.is_whole, cpu, check)

    def live(self, number: int) -> LiveTrial:
        """Starts the process, waits for one row, and then times the others."""
        topic = self._begin(f"{self.name}-live-{number}", WARM_ROW)
        try:
            with self.place.running(self.program(WARM_ROW)) as program:
                end = VisibleEnd(self.place.kafka, topic, PARTITIONS)
                watch(end, lambda seen: seen > 0, program.check, START_CAP_SECONDS)
                return self._timed(topic, program)
        finally:
            self.tidy()

    def _begin(self, name: str, load: Load) -> str:
        self.empty()
        topic = self.place.topic(self.layout.topic_prefix + name)
        self.layout.fill(self.place.url, self.table, topic, load)
        return topic

    def _timed(self, topic: str, program: Program) -> LiveTrial:
        schedule, before = self.options.schedule, list[Cpu]()
        read = cpu_reader(self.place, program)
        task = {"url": self.place.url, "layout": self.layout.name, "table": self.table, "topic": topic}
        with self.place.worker("publish-live", **task, **self.options.live_task) as writer:
            seen = see_records(
                self.place.kafka, topic, schedule, self.options.live_cap, lambda: before.append(read(0, None))
            )
            cpu = read(schedule.counted, before[0] if before else None)
            committed = writer.result(FILL_CAP_SECONDS)["committed_ns"]
        return live_trial(seen, schedule, committed, cpu)


def live_trial(seen: list[SeenRecord], schedule: Schedule, committed: list[int] | None, cpu: Cpu) -> LiveTrial:
    """What was seen of live records, in figures."""
    counted = counted_of(seen, schedule.warm)
    since_commit = [(one.seen_ns - committed[one.number]) / 1e6 for one in counted] if committed else []
    return LiveTrial(
        latency_of([one.milliseconds for one in counted]),
        latency_of(since_commit) if committed else {},
        cpu,
        check_live(schedule.total, [one.number for one in seen]),
    )


def cpu_reader(place: BenchPlace, program: Program) -> Callable[[int, Cpu | None], Cpu]:
    """Reads how much the process and the database have used since an earlier reading, for so many records."""

    def read(records: int, since: Cpu | None) -> Cpu:
        relay, database = cpu_seconds(program.pid), cpu_seconds(place.database_pid)
        if since is None:
            return Cpu(relay, database, records)
        return Cpu(difference(relay, since.relay), difference(database, since.database), records)

    return read


class _Watching:
    """A drain under way: when it is over, and what it has cost since its first records were visible."""

    def __init__(self, side: TableReader, program: Program, end: Callable[[], int], load: Load) -> None:
        self.started = time.monotonic()
        self.count = end
        self.is_whole = False
        self._side = side
        self._load = load
        self._read = cpu_reader(side.place, program)
        self._first: tuple[float, int, Cpu] | None = None

    def is_over(self, count: int) -> bool:
        """Whether all is carried, or the window is closed."""
        if count == 0:
            return False
        if self._first is None:
            self._first = time.monotonic(), count, self._read(0, None)
        self.is_whole = count >= self._load.rows and self._side.is_settled()
        window = self._side.window_seconds
        return self.is_whole or (window is not None and time.monotonic() - self._first[0] >= window)

    def records(self, count: int) -> int:
        """How many of the offsets are records; the rest are the marks of transactions."""
        return self._load.rows if self.is_whole else count

    def cpu(self, count: int) -> Cpu:
        """From the first visible records, which do not count, to now."""
        if self._first is None:
            return Cpu(None, None, 0)
        _, first, reading = self._first
        share = self.records(count) / count
        return self._read(round((count - first) * share), reading)


# Our relay in the contest, as a user runs it: `inorder relay run` with a settings file.

_KEEPING = sql.load("inorder.bench", "keeping.sql")


class Ours(TableReader):
    """Every drain is carried to its end, whatever it takes."""

    name = "inorder"

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS[options.setting.layout], place.settings.relay.table)

    def empty(self) -> None:
        """The table was made with the servers."""
        self.place.watching.execute(f"TRUNCATE {sql.quoted(self.table)}")

    def program(self, load: Load) -> Program:  # noqa: ARG002  ours is set the same way for all
        return self.place.service("relay", "run")


class OursKeeping(Ours):
    """The strategy `polling`, which leaves rows in their table: all is done when its offset has passed them."""

    def empty(self) -> None:
        """The offset begins where the ids of the next rows do."""
        for statement in _KEEPING.starting_with("empty"):
            self.place.watching.execute(statement.format(**self._tables))

    def is_settled(self) -> bool:
        """Whether the offset is at the end, and nothing is missing."""
        statement = _KEEPING.render("is_settled", **self._tables)
        return self.place.watching.execute(statement).fetchone() == (True,)

    @property
    def _tables(self) -> dict[str, str]:
        sides = self.place.settings.relay.polling.side_tables.beside(self.table)
        return {
            "table": sql.quoted(self.table),
            "missing": sql.quoted(sides.missing),
            "exceeded": sql.quoted(sides.exceeded),
            "offset": sql.quoted(sides.offset),
        }


def our_side(place: BenchPlace, options: RelayOptions) -> Ours:
    """As the strategy settles its rows."""
    return OursKeeping(place, options) if options.setting.strategy == "polling" else Ours(place, options)
