"""The report of `inorder bench relay` as a person reads it, on stderr."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from inorder.bench.display import machine_line, show_verdict
from inorder.bench.figures import ratio_of_medians, spread_of, words_of
from inorder.bench.relay_report import (
    DrainCase,
    LiveCase,
    RelayReport,
    cpu_of,
    latency_spread,
    rate_of,
    startup_of,
)
from inorder.bench.report import Check
from inorder.bench.trial import DrainTrial, LiveTrial

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
        words_of(rate_of(trials), 0),
        words_of(startup_of(trials), 1),
        words_of(cpu.relay, 1),
        words_of(cpu.database, 1),
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
        *(words_of(latency_spread(trials, quantile), 1) for quantile in ("p50", "p95", "p99")),
        words_of(spread_of(trial.cpu.relay for trial in trials), 1),
        words_of(spread_of(trial.cpu.database for trial in trials), 1),
    ]


def read_back_line(name: str, check: Check) -> str:
    """How many records of a side were found in the topics, and what was wrong with them."""
    figures = check.as_dict()
    faults = ", ".join(f"{figures[fault]:,} {fault.replace('_', ' ')}" for fault in _FAULTS)
    return f"Read back of {name}: {check.records:,} records, {faults}."


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
