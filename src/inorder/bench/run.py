"""One command: servers of its own, both sides, the report, the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
from rich.console import Console

from inorder.app import App
from inorder.bench.journal import JournalOptions, bench_journal
from inorder.bench.journal_replicate import ReplicateOptions, ReplicateReport, bench_replicate, show_replicate
from inorder.bench.journal_report import JournalReport, show_journal
from inorder.bench.options import PipelineOptions, RelayOptions, RelaySetting
from inorder.bench.peers import eventsourcing
from inorder.bench.peers.choice import PEERS, PIPELINE_PEERS
from inorder.bench.pipeline import bench_pipeline
from inorder.bench.place import BenchPlace, Say
from inorder.bench.relay import RelayReport, bench_relay, show_relay
from inorder.bench.report import PipelineReport, show
from inorder.bench.scaling import ScalingOptions, ScalingReport, bench_scaling, show_scaling
from inorder.bench.wake_up import WakeUpOptions, WakeUpReport, bench_wake_up, show_wake_up
from inorder.embedded import Stack
from inorder.model.errors import GuaranteeError
from inorder.settings import Settings

# Room for the backlog, and no checkpoint in the middle of a drain because the log was full.
POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


class AnyReport(Protocol):
    @property
    def holds(self) -> bool:
        """Whether nothing was lost, duplicated or reordered."""

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""


def run_relay(peer: str, options: RelayOptions, as_json: bool) -> int:
    """Runs the contest of the relay; the exit code is 5 if our side lost, duplicated or reordered something."""
    console = _console()
    return _print(report := relay_report(peer, options, _say_on(console)), as_json, lambda: show_relay(console, report))


def run_pipeline(peer: str, options: PipelineOptions, as_json: bool) -> int:
    """Runs the pipeline against its peer; the exit code is 5 if something was lost, duplicated or reordered."""
    console = _console()
    return _print(report := pipeline_report(peer, options, _say_on(console)), as_json, lambda: show(console, report))


def run_wake_up(options: WakeUpOptions, as_json: bool) -> int:
    """Measures what the wake-up costs writers; the exit code is 5 if something was lost, duplicated or reordered."""
    console = _console()
    return _print(report := wake_up_report(options, _say_on(console)), as_json, lambda: show_wake_up(console, report))


def run_journal(options: JournalOptions, as_json: bool) -> int:
    """Measures journals; the exit code is 5 if something was lost or reordered."""
    console = _console()
    return _print(report := journal_report(options, _say_on(console)), as_json, lambda: show_journal(console, report))


def run_replicate(options: ReplicateOptions, as_json: bool) -> int:
    """Measures replication of journals; the exit code is 5 if the store has something not once, or out of order."""
    console = _console()
    report = replicate_report(options, _say_on(console))
    return _print(report, as_json, lambda: show_replicate(console, report))


def relay_report(peer: str, options: RelayOptions, say: Say) -> RelayReport:
    """Starts servers and lets both sides take turns on them."""
    Settings.load(relay=options.setting.as_dict())  # refuses an invalid setting before anything is started
    chosen = PEERS[peer]
    chosen.set_up()
    before = _load_average()
    with _place(say, options.setting, chosen.postgres) as place:
        drains, lives = bench_relay(place, peer, options)
    notes = (*chosen.notes, "The database's CPU holds what writers cost it, in the live case.")
    return RelayReport(peer, options.setting, options.repeats, drains, lives, notes, _machine(before))


def pipeline_report(peer: str, options: PipelineOptions, say: Say) -> PipelineReport:
    """Starts servers and measures both sides on them."""
    Settings.load(pipeline={"engine": options.engine})  # refuses an invalid setting before anything is started
    chosen = PIPELINE_PEERS[peer]
    chosen.set_up()
    before = _load_average()
    with _place(say, RelaySetting(), {}) as place:
        ours, peer_result, checks = bench_pipeline(place, options, chosen.measure)
    return PipelineReport("pipeline", options.rows, peer, ours, peer_result, checks, _machine(before))


def run_scaling(options: ScalingOptions, as_json: bool) -> int:
    """Measures how the pipeline scales; the exit code is 5 if something was lost, duplicated or reordered."""
    console = _console()
    return _print(report := scaling_report(options, _say_on(console)), as_json, lambda: show_scaling(console, report))


def scaling_report(options: ScalingOptions, say: Say) -> ScalingReport:
    """Starts servers and measures every point on them."""
    Settings.load(pipeline={"engine": options.engine})  # refuses an invalid setting before anything is started
    before = _load_average()
    with _place(say, RelaySetting(), {}) as place:
        points = bench_scaling(place, options)
    return ScalingReport(options, points, _machine(before))


def wake_up_report(options: WakeUpOptions, say: Say) -> WakeUpReport:
    """Starts servers and lets writers publish with and without the wake-up."""
    before = _load_average()
    with _place(say, options.setting, {}) as place:
        trials = bench_wake_up(place, options)
    return WakeUpReport(options, trials, _machine(before))


def journal_report(options: JournalOptions, say: Say) -> JournalReport:
    """Starts servers and measures the journal and, where it is installed, its peer on the same PostgreSQL."""
    before = _load_average()
    with _place(say, RelaySetting(), {}) as place:
        with App(place.settings) as app:
            app.install_schema("journal")
        figures = bench_journal(place, options)
        peer = eventsourcing.measure(place.url, options) if eventsourcing.is_installed() else None
    return JournalReport(options, figures, peer, _machine(before))


def replicate_report(options: ReplicateOptions, say: Say) -> ReplicateReport:
    """Starts servers and measures every store with every engine on them."""
    for engine in options.engines:  # refuses an invalid setting before anything is started
        Settings.load(pipeline={"engine": engine})
    before = _load_average()
    with _place(say, RelaySetting(), {}, [store for store in options.stores if store != "postgres"]) as place:
        trials = bench_replicate(place, options)
    return ReplicateReport(options, trials, _machine(before))


def _place(say: Say, setting: RelaySetting, postgres: Mapping[str, str], more: Sequence[str] = ()) -> BenchPlace:
    say("Starting PostgreSQL and Kafka …" if not more else f"Starting PostgreSQL, Kafka and {', '.join(more)} …")
    return BenchPlace(Stack(("postgres", "kafka", *more), postgres={**POSTGRES, **postgres}), say, setting)


def _print(report: AnyReport, as_json: bool, show_it: Callable[[], None]) -> int:
    show_it()
    if as_json:
        sys.stdout.write(orjson.dumps(report.as_dict()).decode() + "\n")
    return 0 if report.holds else GuaranteeError.exit_code


def _console() -> Console:
    return Console(stderr=True)


def _say_on(console: Console) -> Say:
    return lambda text: console.print(text, highlight=False)


def _machine(load_average_before: float) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "load_average_before": load_average_before,
        "load_average_after": _load_average(),
    }


def _load_average() -> float:
    return round(os.getloadavg()[0], 2)
