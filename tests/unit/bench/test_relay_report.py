"""The report of the relay compares medians, promises for our side alone, and says the same to people."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from inorder.bench.figures import DrainRate, latency_of
from inorder.bench.options import RelaySetting
from inorder.bench.relay import DrainCase, LiveCase, RelayReport, show_relay
from inorder.bench.report import Cpu, DrainTrial, LiveTrial, ReadBackCheck, checked
from inorder.testing.checker import Verdict

WHOLE = ReadBackCheck(100, 100, Verdict())
LOSS = ReadBackCheck(99, 99, Verdict(lost=1, examples=("lost: key 7, event 3",)))


def drained(rate: float | None, *, cpu: float = 0.5, is_whole: bool = True, check: ReadBackCheck = WHOLE) -> DrainTrial:
    return DrainTrial(DrainRate(rate, 2.0, 1.0), is_whole, Cpu(cpu, 0.25, 100_000), check)


def carried(*milliseconds: float, check: ReadBackCheck = WHOLE) -> LiveTrial:
    return LiveTrial(
        latency_of([10 * one for one in milliseconds]), latency_of(milliseconds), Cpu(1.5, 2.0, 500), check
    )


DRAIN = DrainCase(
    200_000,
    1_000,
    1,
    ours=[drained(100_000.0), drained(120_000.0), drained(20_000.0)],
    peer=[drained(rate, cpu=5.0, is_whole=False) for rate in (9_000.0, 10_000.0, 11_000.0)],
)
LIVE = LiveCase(500, 30.0, ours=[carried(1.0, 2.0, 9.0)], peer=[carried(4.0, 8.0, 16.0)])
REPORT = RelayReport(
    peer="goharvest",
    setting=RelaySetting(),
    repeats=3,
    drains=[DRAIN],
    lives=[LIVE],
    notes=["goharvest is rated over a window."],
    machine={"cores": 2, "load_average_before": 0.5, "load_average_after": 1.5},
)
BROKEN = replace(REPORT, lives=[replace(LIVE, ours=[carried(1.0, check=LOSS)])])
PEER_BROKEN = replace(REPORT, drains=[replace(DRAIN, peer=[drained(9_000.0, check=LOSS)])])


def shown(report: RelayReport) -> str:
    console = Console(file=StringIO(), width=140)
    show_relay(console, report)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_rates_are_compared_by_their_medians() -> None:
    found = DRAIN.as_dict()
    assert found["ratio"] == 10.0
    assert found["ours"]["records_per_second"] == {"median": 100_000.0, "min": 20_000.0, "max": 120_000.0, "trials": 3}
    assert len(found["ours"]["trials"]) == 3


def test_cpu_is_told_for_a_million_records_of_relay_and_database_apart() -> None:
    found = DRAIN.as_dict()
    assert found["ours"]["cpu_seconds_per_million"]["relay"]["median"] == 5.0
    assert found["ours"]["cpu_seconds_per_million"]["database"]["median"] == 2.5
    assert found["cpu_ratio"] == pytest.approx(7.5 / 52.5, abs=0.001)


def test_a_window_is_no_whole_drain() -> None:
    found = DRAIN.as_dict()
    assert (found["ours"]["is_whole"], found["peer"]["is_whole"]) == (True, False)


def test_latency_counts_from_the_commit_and_from_the_due_moment_where_there_is_none() -> None:
    assert LIVE.ratio("p50") == 0.25
    sent = replace(LIVE.peer[0], since_commit={})
    assert sent.latency["p50"] == 80.0


def test_the_report_is_one_object_of_known_shape() -> None:
    found = REPORT.as_dict()
    assert set(found) == {"bench", "peer", "relay", "repeats", "cases", "checks", "notes", "machine"}
    assert found["relay"] == {"delivery": "exactly-once", "strategy": "drain", "layout": "native"}
    assert [case["case"] for case in found["cases"]] == ["drain", "latency"]
    assert found["checks"]["ours"]["records"] == 400
    assert found["checks"]["hold"] is True


def test_only_what_we_carried_breaks_our_promise() -> None:
    assert not BROKEN.holds
    assert PEER_BROKEN.holds
    assert PEER_BROKEN.as_dict()["checks"]["peer"]["lost"] == 1


def test_trials_that_could_not_be_rated_leave_no_ratio() -> None:
    unrated = replace(DRAIN, ours=[drained(None)])
    assert unrated.as_dict()["ratio"] is None
    assert shown(replace(REPORT, drains=[unrated]))


def test_cpu_of_a_system_that_does_not_tell_is_not_invented() -> None:
    silent = Cpu(None, None, 100)
    assert silent.per_million(silent.relay) is None
    assert Cpu(1.0, None, 0).per_million(1.0) is None
    assert silent.as_dict() == {"relay": None, "database": None}


def test_what_was_read_back_adds_up() -> None:
    both = checked([drained(1.0), carried(1.0, check=LOSS)])
    assert (both.records, both.verdict.lost) == (199, 1)


def test_a_person_sees_medians_with_their_edges_ratios_and_notes() -> None:
    text = shown(REPORT)
    for words in (
        "200,000 rows, keys 1,000, headers 1",
        "100,000 (20,000..120,000)",
        "10.00",
        "500 a second for 30 s",
        "goharvest is rated over a window.",
        "Read back of inorder: 400 records, 0 lost, 0 duplicated, 0 out of order, 0 phantom.",
        "2 cores, load average 0.5 before and 1.5 after.",
        "whole and in order",
    ):
        assert words in text


def test_a_broken_guarantee_is_told_with_an_example() -> None:
    text = shown(BROKEN)
    assert "ours: lost: key 7, event 3" in text
    assert "A guarantee was broken." in text
