"""`inorder bench wake-up`: what writers pay for waking the relay, with the relay at work beside them."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from rich.console import Console

from inorder.bench.figures import (
    TrialSpread,
    cpu_seconds,
    difference,
    ratio_of_medians,
    spread_dict,
    spread_of,
    spread_text,
)
from inorder.bench.load import value_of
from inorder.bench.options import DRAIN_CAP_SECONDS, FILL_CAP_SECONDS, RelaySetting
from inorder.bench.place import PARTITIONS, BenchPlace
from inorder.bench.report import ReadBackCheck, check_counts, machine_line, show_verdict
from inorder.bench.watching import VisibleEnd, watch
from inorder.database.postgres import connect
from inorder.embedded.stack import Program
from inorder.kafka.readers import read_back
from inorder.model.errors import PermanentError
from inorder.model.message import Limits, Message, encode
from inorder.outbox import Outbox
from inorder.outbox.append import append_statement

TOPIC = "bench-wake-up"
WARM_SECONDS = 1.0
TARGET = 0.85
"""What the writers shall keep of their rate."""


@dataclass(frozen=True, slots=True)
class WakeUpOptions:
    """How many writers, for how long, how often."""

    writers: int = 16
    seconds: float = 10.0
    repeats: int = 3
    setting: RelaySetting = field(default_factory=RelaySetting)


@dataclass(frozen=True, slots=True)
class Writing:
    """One trial: commits a second of all writers together, and what the relay used meanwhile.

    On few cores a relay that rests is the writers' gain, so its time is reported too; it should be equal.
    """

    commits_per_second: float
    relay_cpu_seconds: float | None


@dataclass(frozen=True, slots=True)
class WakeUpTrials:
    """Trials of both kinds, and what the relay made of all that was committed."""

    waking: Sequence[Writing]
    plain: Sequence[Writing]
    check: ReadBackCheck


@dataclass(frozen=True, slots=True)
class WakeUpReport:
    """The object that `--json` prints."""

    options: WakeUpOptions
    trials: WakeUpTrials
    machine: Mapping[str, Any]

    @property
    def waking(self) -> TrialSpread | None:
        """Commits a second with the wake-up."""
        return _rate(self.trials.waking)

    @property
    def plain(self) -> TrialSpread | None:
        """Commits a second without it."""
        return _rate(self.trials.plain)

    @property
    def ratio(self) -> float | None:
        """Which part of their rate the writers keep."""
        return ratio_of_medians(self.waking, self.plain)

    @property
    def holds(self) -> bool:
        """Whether everything that was committed arrived once and in order."""
        return self.trials.check.verdict.holds

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": "wake-up",
            "writers": self.options.writers,
            "seconds": self.options.seconds,
            "relay": self.options.setting.as_dict(),
            "commits_per_second": {
                "waking": spread_dict(self.waking),
                "plain": spread_dict(self.plain),
            },
            "relay_cpu_seconds": {
                "waking": spread_dict(_cpu(self.trials.waking)),
                "plain": spread_dict(_cpu(self.trials.plain)),
            },
            "ratio": self.ratio,
            "target": TARGET,
            "checks": {"ours": self.trials.check.as_dict(), "hold": self.holds},
            "machine": dict(self.machine),
        }


def bench_wake_up(place: BenchPlace, options: WakeUpOptions) -> WakeUpTrials:
    """Both kinds of writers take turns while one relay carries what they commit."""
    writing = _Writers(place, options)
    trials: dict[bool, list[Writing]] = {True: [], False: []}
    with place.running(place.service("relay", "run")) as relay:
        writing.publish(relay, WARM_SECONDS, wakes=True)
        for turn in range(options.repeats):
            for wakes in (True, False) if turn % 2 == 0 else (False, True):
                trials[wakes].append(trial := writing.publish(relay, options.seconds, wakes))
                kind = "with" if wakes else "without"
                place.say(f"{kind} the wake-up: {trial.commits_per_second:,.0f} commits a second")
    return WakeUpTrials(trials[True], trials[False], writing.check())


def show_wake_up(console: Console, report: WakeUpReport) -> None:
    """Both rates, what is left, and whether all of it arrived."""
    for name, trials in (("with the wake-up", report.trials.waking), ("without it", report.trials.plain)):
        rate, cpu = spread_text(_rate(trials), 0), spread_text(_cpu(trials), 1)
        console.print(f"{name}: {rate} commits a second, the relay used {cpu} s of CPU meanwhile", highlight=False)
    if report.ratio is not None:
        console.print(f"They keep {report.ratio:.0%} of their rate; the aim is {TARGET:.0%}.", highlight=False)
    console.print(machine_line(report.machine), highlight=False)
    show_verdict(console, {"ours": report.trials.check}, report.holds)


def _rate(trials: Sequence[Writing]) -> TrialSpread | None:
    return spread_of(trial.commits_per_second for trial in trials)


def _cpu(trials: Sequence[Writing]) -> TrialSpread | None:
    return spread_of(trial.relay_cpu_seconds for trial in trials)


class _Writers:
    """Writers at work: each has a key of its own, so that their order can be checked afterwards."""

    def __init__(self, place: BenchPlace, options: WakeUpOptions) -> None:
        self._place = place
        self._writers = options.writers
        self._table = place.settings.relay.table
        self._topic = place.topic(TOPIC)
        self._committed: dict[int, int] = {}

    def publish(self, relay: Program, seconds: float, wakes: bool) -> Writing:
        """One trial; returns when the relay has carried everything."""
        task = {"url": self._place.url, "table": self._table, "topic": self._topic, "writers": self._writers}
        first_key, before = len(self._committed) + 1, cpu_seconds(relay.pid)
        with self._place.worker(
            "publish-flat-out", **task, seconds=seconds, first_key=first_key, wakes=wakes
        ) as writers:
            counts = dict[int, int](writers.result(seconds + FILL_CAP_SECONDS)["committed"])
        used = difference(cpu_seconds(relay.pid), before)
        self._committed |= counts
        end = VisibleEnd(self._place.kafka, self._topic, PARTITIONS)
        watch(end, lambda _: self._place.is_empty(self._table), relay.check, DRAIN_CAP_SECONDS)
        counted = (count for key, count in counts.items() if key < first_key + self._writers)
        return Writing(sum(counted) / seconds, used)

    def check(self) -> ReadBackCheck:
        """What arrived against what was committed."""
        return check_counts(self._committed, (record.value for record in read_back(self._place.kafka, self._topic)))


# Writers that publish as fast as the database lets them, each in a process of its own.
#
# One side writes through `Outbox`. The other runs the same INSERT with the part that wakes the relay cut out, through
# the same driver and with the same encoding. The relay would then not be woken, and its rest would be the writers'
# gain; so on both sides one more writer publishes through `Outbox` at a slow pace, keeps the relay at work, and is
# not counted.

CONNECT_SECONDS = 60.0
"""How long writers wait for each other before they begin."""
RING_SECONDS = 0.005
"""The pause of the one that keeps the relay awake."""
_WAKE_UP = re.compile(r"\nWHERE .*?\n(?=ORDER BY place)", re.DOTALL)

Publish = Callable[[psycopg.Connection[Any], Message], None]


def publish_flat_out(
    url: str, table: str, topic: str, writers: int, seconds: float, first_key: int, wakes: bool
) -> dict[str, Any]:
    """Lets so many writers commit one message a transaction; returns how many each committed, by its key.

    The last of the keys is that of the one that keeps the relay awake.
    """
    fork = multiprocessing.get_context("fork")  # nothing here has started a thread
    answers = fork.SimpleQueue()
    keys = range(first_key, first_key + writers + 1)
    start = fork.Barrier(len(keys))
    kinds = [*((wakes, 0.0) for _ in range(writers)), (True, RING_SECONDS)]
    processes = [
        fork.Process(target=_write, args=(url, table, topic, key, start, seconds, answers, *kind))
        for key, kind in zip(keys, kinds, strict=True)
    ]
    for process in processes:
        process.start()
    committed = dict(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return {"committed": [[key, committed[key]] for key in keys]}


def without_wake_up(statement: str) -> str:
    """The append statement less the condition that wakes a sleeping relay."""
    plain, found = _WAKE_UP.subn("\n", statement)
    if found != 1 or "pg_notify" in plain:
        raise PermanentError("The wake-up could not be cut out of the append statement; it has another shape now.")
    return plain


def _write(
    url: str, table: str, topic: str, key: int, start: Any, seconds: float, answers: Any, wakes: bool, pause: float
) -> None:
    publish = Outbox(table).publish if wakes else _plain(table)
    committed = 0
    with connect(url, "inorder bench (writer)") as connection:
        start.wait(CONNECT_SECONDS)  # until all are connected, however long that takes
        end = time.monotonic() + seconds
        while committed == 0 or time.monotonic() < end:
            publish(connection, Message(topic, key=key, value=value_of(key, committed + 1)))
            connection.commit()
            committed += 1
            if pause:
                time.sleep(pause)
    answers.put((key, committed))


def _plain(table: str) -> Publish:
    append = append_statement(table, "postgresql")
    statement, limits = without_wake_up(append.pyformat).encode(), Limits()

    def publish(connection: psycopg.Connection[Any], message: Message) -> None:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement, append.parameters((encode(message, limits),)))

    return publish
