"""`inorder bench` measures both sides and reads back what they carried; how fast they were is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import inorder.cli

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]

SOURCE = Path(inorder.cli.__file__).parents[2]
ROWS = 2_000
SMALL = ("--rows", str(ROWS), "--rate", "100", "--seconds", "1")
LIVE = 600
"""One second of records, after five of warm-up."""


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inorder.cli", "bench", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def report_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return report


WHOLE = {"lost": 0, "duplicated": 0, "out_of_order": 0, "phantom": 0}


@pytest.mark.fault
def test_a_small_contest_of_the_relay_carries_everything_on_both_sides(tmp_path: Path) -> None:
    report = report_of(bench(tmp_path, "relay", *SMALL, "--keys", "7", "--headers", "1", "--repeats", "1", "--json"))
    assert (report["bench"], report["peer"]) == ("relay", "librdkafka")
    drain, live = report["cases"]
    assert (drain["rows"], drain["keys"], drain["headers"]) == (ROWS, 7, 1)
    for side in ("ours", "peer"):
        assert drain[side]["checks"] == {"records": ROWS, "distinct": ROWS, **WHOLE}
        assert live[side]["checks"] == {"records": LIVE, "distinct": LIVE, **WHOLE}
        assert {"records_per_second", "startup_seconds", "cpu_seconds_per_million"} <= set(drain[side])
        assert live[side]["latency_ms"]["p99"]["trials"] == 1
    assert report["checks"]["hold"] is True


@pytest.mark.fault
def test_a_small_run_of_the_pipeline_carries_everything_on_both_sides(tmp_path: Path) -> None:
    report = report_of(bench(tmp_path, "pipeline", *SMALL, "--keys", "500", "--engine", "resident", "--json"))
    assert (report["bench"], report["rows"], report["peer"]) == ("pipeline", ROWS, "raw-copy")
    assert all(parts[name] > 0 for parts in report["ours"]["memory_mb"].values() for name in ("driver", "jvm", "tasks"))
    assert report["checks"] == {
        "ours": {"records": ROWS, "distinct": 500, **WHOLE},
        "ours_warm": {"records": 2 * ROWS, "distinct": 500, **WHOLE},
        "ours_live": {"records": LIVE, "distinct": LIVE, **WHOLE},
        "peer": {"records": ROWS, "distinct": 500, **WHOLE},
        "peer_live": {"records": LIVE, "distinct": LIVE, **WHOLE},
        "hold": True,
    }
    assert report["ours"]["engine"] == "resident"
    assert report["ours"]["warm"]["records_per_second"] > 0
    for side in (report["ours"], report["peer_result"]):
        assert {"records_per_second", "seconds", "startup_seconds", "latency_ms"} <= set(side)
        assert side["latency_ms"]["count"] == 100


@pytest.mark.parametrize("name", ["relay", "pipeline"])
def test_each_bench_tells_its_options(tmp_path: Path, name: str) -> None:
    ran = bench(tmp_path, name, "--help")
    assert ran.returncode == 0
    options = ("--rows", "--rate", "--seconds", "--peer", "--json", "--config FILE")
    assert [option for option in options if option not in ran.stdout] == []


def test_a_peer_that_is_unknown_is_wrong_usage(tmp_path: Path) -> None:
    ran = bench(tmp_path, "relay", "--peer", "nobody")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert [peer for peer in ("librdkafka", "goharvest", "debezium") if peer not in ran.stderr] == []


@pytest.mark.full
def test_a_strategy_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    ran = bench(tmp_path, "relay", "--strategy", "guess")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "guess" in ran.stderr


@pytest.mark.full
def test_a_small_run_of_the_journal_reads_back_all_that_was_appended(tmp_path: Path) -> None:
    small = ("--events", "2000", "--seconds", "0.3", "--foreign", "500", "--reads", "3", "--repeats", "1")
    report = report_of(bench(tmp_path, "journal", *small, "--json"))
    assert report["bench"] == "journal"
    assert report["checks"] == {"ours": {"records": 4_000, "distinct": 4_000, **WHOLE}, "hold": True}
    assert report["ours"]["recovery_warm_ms"]["count"] == report["ours"]["recovery_from_kafka_ms"]["count"] == 3
    assert min(report["ours"]["consumer"].values()) > 0


@pytest.mark.full
def test_a_small_run_of_replication_has_every_event_in_the_store_once(tmp_path: Path) -> None:
    small = ("--replicate", "--store", "postgres", "--engine", "resident", "--events", "4000", "--seconds", "0.5")
    report = report_of(bench(tmp_path, "journal", *small, "--json"))
    [trial] = report["trials"]
    events = 4_000 + 2_750  # five seconds of warm-up and half a second that counts, 500 a second
    assert (report["bench"], trial["store"], trial["engine"]) == ("journal-replicate", "postgres", "resident")
    assert trial["check"] == {"records": events, "distinct": events, **WHOLE}
    assert trial["latency_ms"]["count"] == 250
    assert trial["targets"] == {"events_per_second": 60_000, "latency_p50_ms": 20}
