"""One run of a benchmark: servers up, both sides measured, the report told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from rich.console import Console

from inorder.bench import pipeline, relay
from inorder.bench.display import show
from inorder.bench.options import Options
from inorder.bench.place import BenchPlace
from inorder.bench.report import Check, Report, Side
from inorder.embedded import Stack
from inorder.model.errors import GuaranteeError

Bench = Callable[[BenchPlace, Options], tuple[Side, Side, dict[str, Check]]]

BENCHES: Mapping[tuple[str, str], Bench] = {
    ("relay", relay.PEER): relay.bench_relay,
    ("pipeline", pipeline.PEER): pipeline.bench_pipeline,
}
"""By what is measured and against whom."""


def run(bench: str, peer: str, options: Options, as_json: bool) -> int:
    """Runs a benchmark and tells its report; the exit code is 5 if something was lost, doubled or reordered."""
    console = Console(stderr=True)
    report = measured(bench, peer, options, lambda text: console.print(text, highlight=False))
    show(console, report)
    if as_json:
        sys.stdout.write(orjson.dumps(report.as_dict()).decode() + "\n")
    return 0 if report.holds else GuaranteeError.exit_code


def measured(bench: str, peer: str, options: Options, say: Callable[[str], None]) -> Report:
    """Starts servers of its own and measures both sides on them."""
    measure = BENCHES[bench, peer]
    before = _load_average()
    say("Starting PostgreSQL and Kafka …")
    with BenchPlace(Stack(("postgres", "kafka")), say, delivery=options.delivery) as place:
        say(f"Logs are in {place.folder}.")
        ours, peer_result, checks = measure(place, options)
    machine: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load_average_before": before,
        "load_average_after": _load_average(),
    }
    return Report(bench, options.rows, peer, ours, peer_result, checks, machine)


def _load_average() -> float:
    return round(os.getloadavg()[0], 2)
