"""The report of the journal's benchmark: the figures, their targets, and the peer's beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from inorder.bench.figures import latency_of, spread_dict, spread_of
from inorder.bench.journal import JournalFigures, JournalOptions
from inorder.bench.peers import eventsourcing
from inorder.bench.peers.eventsourcing import PeerFigures
from inorder.bench.report import machine_line, show_verdict

TARGETS: Mapping[str, float] = {
    "batched_events_per_second": 60_000,
    "single_appends_per_second": 6_000,
    "recovery_warm_ms": 30,
    "recovery_from_kafka_ms": 400,
}


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The object that `--json` prints."""

    options: JournalOptions
    figures: JournalFigures
    peer: PeerFigures | None
    machine: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether what was appended was read back, once and in order."""
        return self.figures.check.verdict.holds

    def ours(self) -> dict[str, Any]:
        figures = self.figures
        return {
            "batched_events_per_second": spread_dict(spread_of(figures.batched_per_second)),
            "single_appends_per_second": spread_dict(spread_of(figures.singles_per_second)),
            "recovery_warm_ms": latency_of(figures.warm_ms),
            "recovery_from_kafka_ms": latency_of(figures.kafka_ms),
            "updates_per_second": spread_dict(spread_of(figures.updates_per_second)),
            "subscribed_events_per_second": round(figures.subscribed_per_second, 1),
            "consumer": {name: round(value, 3) for name, value in figures.consumer._asdict().items()},
        }

    def peers(self) -> dict[str, Any] | None:
        """The peer's figures, where it was there."""
        if self.peer is None:
            return None
        return {
            "name": eventsourcing.NAME,
            "batched_events_per_second": round(self.peer.batched_per_second, 1),
            "single_appends_per_second": round(self.peer.singles_per_second, 1),
            "recovery_warm_ms": latency_of(self.peer.recovery_ms),
            "updates_per_second": round(self.peer.updates_per_second, 1),
        }

    def ratios(self) -> dict[str, float] | None:
        """How many times as fast as the peer; recovery by the inverse of its median time."""
        ours, peer = self.ours(), self.peers()
        if peer is None:
            return None
        rates = ("batched_events_per_second", "single_appends_per_second", "updates_per_second")
        found = {name: ours[name]["median"] / peer[name] for name in rates}
        found["recovery_warm_ms"] = peer["recovery_warm_ms"]["p50"] / ours["recovery_warm_ms"]["p50"]
        return {name: round(ratio, 2) for name, ratio in found.items()}

    def as_dict(self) -> dict[str, Any]:
        return {
            "bench": "journal",
            "options": asdict(self.options),
            "ours": self.ours(),
            "peer": self.peers(),
            "ratios": self.ratios(),
            "targets": dict(TARGETS),
            "checks": {"ours": self.figures.check.as_dict(), "hold": self.holds},
            "machine": dict(self.machine),
        }


def show_journal(console: Console, report: JournalReport) -> None:
    """Ours, the peer's and the targets beside each other, then what a consumer costs."""
    ours, peer, ratios = report.ours(), report.peers() or {}, report.ratios() or {}
    table = Table(box=None, pad_edge=False)
    for heading in ("", "inorder", eventsourcing.NAME, "aim", "times"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, label in _rows(report.options).items():
        aim = f"{TARGETS[name]:,.0f}" if name in TARGETS else ""
        times = f"{ratios[name]:.1f}" if name in ratios else ""
        table.add_row(label, _cell(ours[name]), _cell(peer.get(name)), aim, times)
    console.print(table, highlight=False)
    cost = report.figures.consumer
    console.print(
        f"A consumer's first record comes after {cost.init_ms:,.1f} ms, after a seek in {cost.seek_ms:,.1f} ms, and"
        f" each one more in {cost.poll_us:,.1f} µs.",
        highlight=False,
    )
    if report.peer is None:
        console.print(eventsourcing.MISSING, highlight=False)
    console.print(machine_line(report.machine), highlight=False)
    show_verdict(console, {"ours": report.figures.check}, report.holds)


def _rows(options: JournalOptions) -> dict[str, str]:
    return {
        "batched_events_per_second": f"events a second, {options.batch} an append",
        "single_appends_per_second": f"appends a second, {options.writers} writers (the peer has one)",
        "recovery_warm_ms": f"recovery of {options.journal_events:,} events, replicated, ms",
        "recovery_from_kafka_ms": f"from Kafka alone, among {options.foreign:,} others, ms",
        "updates_per_second": f"updates of entities a second, {options.writers} writers on either side",
        "subscribed_events_per_second": "events a second through a subscription",
    }


def _cell(value: float | Mapping[str, float] | None) -> str:
    if value is None:
        return "-"
    if not isinstance(value, Mapping):
        return f"{value:,.0f}"
    return f"{value['p50']:,.1f}" if "p50" in value else f"{value['median']:,.0f}"
