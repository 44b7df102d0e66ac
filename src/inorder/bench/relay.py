"""`inorder bench relay`: our relay and a peer take turns on the same broker and the same database.

Every trial starts a new process on a new topic. The first side alternates with each round, so that neither always finds
the machine as the other left it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from inorder.bench.contender import Contender, our_side
from inorder.bench.figures import TrialSpread, ratio_of, ratio_of_medians, spread_dict, spread_of, spread_text
from inorder.bench.load import Load
from inorder.bench.options import FILL_CAP_SECONDS, RelayOptions, RelaySetting
from inorder.bench.peers.choice import PEERS
from inorder.bench.place import BenchPlace
from inorder.bench.report import Cpu, DrainTrial, LiveTrial, ReadBackCheck, checked, machine_line, show_verdict

WARM_ROWS = 100_000
WARM_KEYS = 1_000
WARM_RATE = 2_000
WARM_SECONDS = 4.0

AnyTrial = TypeVar("AnyTrial", DrainTrial, LiveTrial)


def bench_relay(place: BenchPlace, peer: str, options: RelayOptions) -> tuple[list[DrainCase], list[LiveCase]]:
    """All cases, each with as many trials a side as there are repeats."""
    contest = Contest(place, our_side(place, options), PEERS[peer].make(place, options), options)
    contest.warm_broker()
    return [contest.drain(load) for load in options.loads], [contest.live()] if options.live else []


class Contest:
    """Two sides that take turns."""

    def __init__(self, place: BenchPlace, ours: Contender, peer: Contender, options: RelayOptions) -> None:
        self._place = place
        self._ours = ours
        self._peer = peer
        self._options = options
        self._number = 0

    def warm_broker(self) -> None:
        """Sends large and small requests: the first ones of a new broker are slow, whichever side sends them."""
        task = {"kafka": self._place.kafka, "topic": self._place.topic("bench-warm-up")}
        with self._place.worker("send-all", **task, rows=WARM_ROWS, keys=WARM_KEYS) as sender:
            sender.result(FILL_CAP_SECONDS)
        with self._place.worker("send-live", **task, rate=WARM_RATE, seconds=WARM_SECONDS, warm_seconds=0.0) as sender:
            sender.result(FILL_CAP_SECONDS)

    def drain(self, load: Load) -> DrainCase:
        title = f"drain of {load.rows:,}, keys {load.keys:,}, headers {load.headers}"
        ours, peer = self._alternating(title, lambda side, number: side.drain(load, number), _drain_words)
        return DrainCase(load.rows, load.keys, load.headers, ours, peer)

    def live(self) -> LiveCase:
        schedule = self._options.schedule
        title = f"live, {schedule.rate:,} a second for {schedule.seconds:g} s"
        ours, peer = self._alternating(title, lambda side, number: side.live(number), _live_words)
        return LiveCase(schedule.rate, schedule.seconds, ours, peer)

    def _alternating(
        self, title: str, trial: Callable[[Contender, int], AnyTrial], describe: Callable[[AnyTrial], str]
    ) -> tuple[list[AnyTrial], list[AnyTrial]]:
        ours, peer = list[AnyTrial](), list[AnyTrial]()
        for turn in range(self._options.repeats):
            sides = [(self._ours, ours), (self._peer, peer)]
            for side, trials in sides if turn % 2 == 0 else reversed(sides):
                self._number += 1
                trials.append(trial(side, self._number))
                self._place.say(f"{title}: {side.name} {describe(trials[-1])}")
        return ours, peer


def _drain_words(trial: DrainTrial) -> str:
    rate = trial.drain.records_per_second
    speed = "too quick to rate" if rate is None else f"{rate:,.0f} a second"
    return speed if trial.is_whole else f"{speed} (window)"


def _live_words(trial: LiveTrial) -> str:
    latency = trial.latency
    return f"p50 {latency.get('p50', '-')} ms, p99 {latency.get('p99', '-')} ms"


# The report: both sides of every case, their ratios, and whether ours was whole.

QUANTILES = ("p50", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class CpuSpread:
    """Processor seconds for a million records."""

    relay: TrialSpread | None
    database: TrialSpread | None

    @classmethod
    def of(cls, readings: Sequence[Cpu]) -> CpuSpread:
        """Over several trials."""
        return cls(
            spread_of(reading.per_million(reading.relay) for reading in readings),
            spread_of(reading.per_million(reading.database) for reading in readings),
        )

    @property
    def total(self) -> float | None:
        """Relay and database together; a side without a database has the relay's alone."""
        known = [spread.median for spread in (self.relay, self.database) if spread is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        return {"relay": spread_dict(self.relay), "database": spread_dict(self.database)}


@dataclass(frozen=True, slots=True)
class DrainCase:
    """One backlog, drained by both sides in every trial."""

    rows: int
    keys: int
    headers: int
    ours: Sequence[DrainTrial]
    peer: Sequence[DrainTrial]

    @property
    def ratio(self) -> float | None:
        """Our median rate over the peer's."""
        return ratio_of_medians(rate_of(self.ours), rate_of(self.peer))

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": "drain",
            "rows": self.rows,
            "keys": self.keys,
            "headers": self.headers,
            "ours": _drained(self.ours),
            "peer": _drained(self.peer),
            "ratio": self.ratio,
            "cpu_ratio": ratio_of(cpu_of(self.ours).total, cpu_of(self.peer).total),
        }


@dataclass(frozen=True, slots=True)
class LiveCase:
    """Live records, carried by both sides in every trial."""

    rate: int
    seconds: float
    ours: Sequence[LiveTrial]
    peer: Sequence[LiveTrial]

    def ratio(self, quantile: str) -> float | None:
        """Our median latency over the peer's; below 1 ours is sooner."""
        return ratio_of_medians(latency_spread(self.ours, quantile), latency_spread(self.peer, quantile))

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": "latency",
            "rate": self.rate,
            "seconds": self.seconds,
            "ours": _carried(self.ours),
            "peer": _carried(self.peer),
            "ratio": {quantile: self.ratio(quantile) for quantile in QUANTILES},
        }


@dataclass(frozen=True, slots=True)
class RelayReport:
    """The object that `--json` prints."""

    peer: str
    setting: RelaySetting
    repeats: int
    drains: Sequence[DrainCase]
    lives: Sequence[LiveCase]
    notes: Sequence[str]
    machine: Mapping[str, Any]

    @property
    def checks(self) -> dict[str, ReadBackCheck]:
        """What was read back of each side, over all cases."""
        return {
            "ours": checked([trial for case in self.cases for trial in case.ours]),
            "peer": checked([trial for case in self.cases for trial in case.peer]),
        }

    @property
    def cases(self) -> list[DrainCase | LiveCase]:
        """All of them, drains first."""
        return [*self.drains, *self.lives]

    @property
    def holds(self) -> bool:
        """Whether all that we carried is whole and in order; what the peer did is reported, and does not count."""
        return self.checks["ours"].verdict.holds

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": "relay",
            "peer": self.peer,
            "relay": self.setting.as_dict(),
            "repeats": self.repeats,
            "cases": [case.as_dict() for case in self.cases],
            "checks": {name: check.as_dict() for name, check in self.checks.items()} | {"hold": self.holds},
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }


def rate_of(trials: Sequence[DrainTrial]) -> TrialSpread | None:
    """Records a second."""
    return spread_of(trial.drain.records_per_second for trial in trials)


def startup_of(trials: Sequence[DrainTrial]) -> TrialSpread | None:
    """Seconds from the start of the process to its first visible record."""
    return spread_of(trial.drain.startup_seconds for trial in trials)


def latency_spread(trials: Sequence[LiveTrial], quantile: str) -> TrialSpread | None:
    """One quantile of the latency, in milliseconds, over several trials."""
    return spread_of(trial.latency.get(quantile) for trial in trials)


def cpu_of(trials: Sequence[DrainTrial | LiveTrial]) -> CpuSpread:
    """What the trials cost."""
    return CpuSpread.of([trial.cpu for trial in trials])


def _drained(trials: Sequence[DrainTrial]) -> dict[str, Any]:
    return {
        "records_per_second": spread_dict(rate_of(trials)),
        "startup_seconds": spread_dict(startup_of(trials)),
        "cpu_seconds_per_million": cpu_of(trials).as_dict(),
        "is_whole": all(trial.is_whole for trial in trials),
        "checks": checked(trials).as_dict(),
        "trials": [trial.as_dict() for trial in trials],
    }


def _carried(trials: Sequence[LiveTrial]) -> dict[str, Any]:
    return {
        "latency_ms": {quantile: spread_dict(latency_spread(trials, quantile)) for quantile in QUANTILES},
        "cpu_seconds": {
            "relay": spread_dict(spread_of(trial.cpu.relay for trial in trials)),
            "database": spread_dict(spread_of(trial.cpu.database for trial in trials)),
        },
        "checks": checked(trials).as_dict(),
        "trials": [trial.as_dict() for trial in trials],
    }


# The report of `inorder bench relay` as a person reads it, on stderr.

_FAULTS = ("lost", "duplicated", "out_of_order", "phantom")

_DRAIN = ("drain", "per second", "start s", "CPU s/M relay", "CPU s/M database")
_LIVE = ("live", "p50 ms", "p95 ms", "p99 ms", "CPU s relay", "CPU s database")


def show_relay(console: Console, report: RelayReport) -> None:
    """Each case with both sides under each other and their ratio; every figure is median (least..greatest)."""
    if report.drains:
        _show(console, _DRAIN, [row for case in report.drains for row in _drain_rows(case, report.peer)])
    if report.lives:
        _show(console, _LIVE, [row for case in report.lives for row in _live_rows(case, report.peer)])
    for note in (
        f"Figures: median (least..greatest) of {report.repeats} trials a side; M is a million records.",
        *report.notes,
    ):
        console.print(note, highlight=False)
    console.print(read_back_line("inorder", report.checks["ours"]), highlight=False)
    console.print(read_back_line(report.peer, report.checks["peer"]), highlight=False)
    console.print(machine_line(report.machine), highlight=False)
    show_verdict(console, {"ours": report.checks["ours"]}, report.holds)


def _show(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False)


def _drain_rows(case: DrainCase, peer: str) -> list[list[str]]:
    title = f"{case.rows:,} rows, keys {case.keys:,}, headers {case.headers}"
    return [
        [title],
        ["  inorder", *_drain_cells(case.ours)],
        [f"  {peer}", *_drain_cells(case.peer)],
        ["  ratio", _ratio(case.ratio), "", *_cpu_ratios(case)],
    ]


def _drain_cells(trials: Sequence[DrainTrial]) -> list[str]:
    cpu = cpu_of(trials)
    return [
        spread_text(rate_of(trials), 0),
        spread_text(startup_of(trials), 1),
        spread_text(cpu.relay, 1),
        spread_text(cpu.database, 1),
    ]


def _cpu_ratios(case: DrainCase) -> list[str]:
    ours, peer = cpu_of(case.ours), cpu_of(case.peer)
    pairs = (ours.relay, peer.relay), (ours.database, peer.database)
    return [_ratio(ratio_of_medians(*pair)) for pair in pairs]


def _live_rows(case: LiveCase, peer: str) -> list[list[str]]:
    ratios = [case.ratio(quantile) for quantile in ("p50", "p95", "p99")]
    return [
        [f"{case.rate:,} a second for {case.seconds:g} s"],
        ["  inorder", *_live_cells(case.ours)],
        [f"  {peer}", *_live_cells(case.peer)],
        ["  ratio", *map(_ratio, ratios)],
    ]


def _live_cells(trials: Sequence[LiveTrial]) -> list[str]:
    return [
        *(spread_text(latency_spread(trials, quantile), 1) for quantile in ("p50", "p95", "p99")),
        spread_text(spread_of(trial.cpu.relay for trial in trials), 1),
        spread_text(spread_of(trial.cpu.database for trial in trials), 1),
    ]


def read_back_line(name: str, check: ReadBackCheck) -> str:
    """How many records of a side were found in the topics, and what was wrong with them."""
    figures = check.as_dict()
    faults = ", ".join(f"{figures[fault]:,} {fault.replace('_', ' ')}" for fault in _FAULTS)
    return f"Read back of {name}: {check.records:,} records, {faults}."


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
