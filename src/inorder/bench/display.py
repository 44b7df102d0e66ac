"""The report as a person reads it, on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from inorder.bench.report import Check, Report, Side


def show(console: Console, report: Report) -> None:
    """Both sides beside each other, the ratio, the checks and the machine."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "cold per second", "seconds", "startup s", "warm per second", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("inorder", *_cells(report.ours))
    table.add_row(report.peer, *_cells(report.peer_result))
    console.print(table, highlight=False)
    console.print(_ratio(report), highlight=False)
    console.print(f"{report.rows:,} rows. {machine_line(report.machine)}", highlight=False)
    show_verdict(console, report.checks, report.holds)


def show_verdict(console: Console, checks: Mapping[str, Check], holds: bool) -> None:
    """Whether what was read back is whole, with examples of what is not."""
    for name, check in checks.items():
        for example in check.verdict.examples:
            console.print(f"  {name}: {example}", style="red", highlight=False)
    words = "What was read back is whole and in order." if holds else "A guarantee was broken."
    console.print(words, style="green" if holds else "bold red", highlight=False)


def machine_line(machine: Mapping[str, Any]) -> str:
    """Where it was measured, and what else went on there."""
    before, after = machine["load_average_before"], machine["load_average_after"]
    return f"{machine['cores']} cores, load average {before} before and {after} after."


def _cells(side: Side) -> list[str]:
    rate, latency = side.drain.records_per_second, side.latency_ms
    quantiles = [f"{latency[name]:,.1f}" if name in latency else "-" for name in ("p50", "p95", "p99")]
    return [
        _rate(rate),
        f"{side.drain.seconds:.2f}",
        f"{side.drain.startup_seconds:.2f}",
        _rate(side.more.get("warm", {}).get("records_per_second")),
        *quantiles,
    ]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _ratio(report: Report) -> str:
    if report.ratio is None:
        return "Too few rows to give a rate; use more --rows."
    warm = "" if report.warm_ratio is None else f" Warm it is {report.warm_ratio:.2f} times."
    return f"inorder carries {report.ratio:.2f} times what {report.peer} carries.{warm}"
