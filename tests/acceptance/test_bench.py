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

SOURCE = Path(inorder.cli.__file__).parents[2]
ROWS = 2_000
SMALL = ("--rows", str(ROWS), "--rate", "100", "--seconds", "1")
LIVE = 300
"""One second of records, after two of warm-up."""


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inorder.cli", "bench", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def report_of(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize(
    ("name", "peer"),
    [("relay", "librdkafka"), ("pipeline", "raw-copy")],
)
def test_a_small_run_carries_everything_on_both_sides(tmp_path: Path, name: str, peer: str) -> None:
    report = report_of(bench(tmp_path, name, *SMALL, "--json"))
    assert (report["bench"], report["rows"], report["peer"]) == (name, ROWS, peer)
    whole = {"lost": 0, "duplicated": 0, "out_of_order": 0, "phantom": 0}
    assert report["checks"] == {
        "ours": {"records": ROWS, "distinct": ROWS, **whole},
        "ours_live": {"records": LIVE, "distinct": LIVE, **whole},
        "peer": {"records": ROWS, "distinct": ROWS, **whole},
        "peer_live": {"records": LIVE, "distinct": LIVE, **whole},
        "hold": True,
    }
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
    assert "librdkafka" in ran.stderr
