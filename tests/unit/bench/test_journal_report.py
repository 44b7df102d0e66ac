"""The report of the journal's benchmark: figures beside their aims, a peer where there is one, and the verdict."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from inorder.bench.journal import JournalFigures, JournalOptions, count_rate
from inorder.bench.journal_report import TARGETS, JournalReport, show_journal
from inorder.bench.peers import eventsourcing
from inorder.bench.peers.eventsourcing import PeerFigures
from inorder.bench.report import ReadBackCheck
from inorder.journal.stores.kafka_log import ConsumerCost
from inorder.testing.checker import Verdict

MACHINE = {"cores": 2, "load_average_before": 0.5, "load_average_after": 1.5}
PEER = PeerFigures(6_200.0, 700.0, [44.0, 45.0, 46.0], 100.0)


def report(peer: PeerFigures | None = PEER, lost: int = 0) -> JournalReport:
    figures = JournalFigures(
        [61_000.4, 60_000.0, 70_000.0],
        [6_500.0],
        [20.0, 21.0, 90.0],
        [250.0],
        [350.0, 300.0, 310.0],
        50_000.0,
        ConsumerCost(30.5, 12.25, 4.0),
        ReadBackCheck(200_100, 200_100, Verdict(lost=lost)),
    )
    return JournalReport(JournalOptions(), figures, peer, MACHINE)


def shown(given: JournalReport) -> str:
    text = io.StringIO()
    show_journal(Console(file=text, width=200), given)
    return text.getvalue()


def test_json_has_our_figures_the_peers_and_the_aims() -> None:
    given = report().as_dict()
    assert given["ours"]["batched_events_per_second"]["median"] == 61_000.4
    assert given["ours"]["recovery_warm_ms"]["p50"] == 21.0
    assert given["ours"]["consumer"] == {"init_ms": 30.5, "seek_ms": 12.25, "poll_us": 4.0}
    assert (given["peer"]["name"], given["peer"]["batched_events_per_second"]) == ("eventsourcing", 6_200.0)
    assert given["targets"] == dict(TARGETS)
    assert given["ratios"] == {
        "batched_events_per_second": 9.84,
        "single_appends_per_second": 9.29,
        "updates_per_second": 3.1,
        "recovery_warm_ms": 2.14,
    }
    assert given["checks"]["hold"] is True
    assert given["machine"] == MACHINE


def test_a_person_sees_both_sides_the_aims_and_what_a_consumer_costs() -> None:
    lines = shown(report()).splitlines()
    assert lines[1].split()[-4:] == ["61,000", "6,200", "60,000", "9.8"]
    assert lines[4].split()[-3:] == ["250.0", "-", "400"]
    assert lines[5].split()[-3:] == ["310", "100", "3.1"]
    assert "A consumer's first record comes after 30.5 ms, after a seek in 12.2 ms" in shown(report())
    assert "whole and in order" in shown(report())


def test_without_the_peer_it_says_how_to_have_it() -> None:
    given = report(peer=None)
    assert (given.as_dict()["peer"], given.as_dict()["ratios"]) == (None, None)
    assert "eventsourcing is not installed here; `pip install" in shown(given)


def test_figures_of_a_run_that_lost_something_are_worth_nothing() -> None:
    assert not report(lost=1).holds
    assert "A guarantee was broken" in shown(report(lost=1))


def test_the_peer_is_there_only_with_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventsourcing, "find_spec", lambda name: object() if name == "eventsourcing" else None)
    assert not eventsourcing.is_installed()
    monkeypatch.setattr(eventsourcing, "find_spec", lambda _: object())
    assert eventsourcing.is_installed()


def test_the_peer_gets_the_address_of_our_postgres() -> None:
    given = eventsourcing._environment("postgresql+psycopg://us%40er:pass@10.0.0.1:5433/bench", 16)
    assert [given[f"POSTGRES_{name}"] for name in ("HOST", "PORT", "DBNAME", "USER", "PASSWORD")] == [
        "10.0.0.1", "5433", "bench", "us@er", "pass",
    ]  # fmt: skip


def test_a_rate_of_updates_counts_only_if_all_of_them_are_there() -> None:
    options = JournalOptions(writers=2, updates=3)
    assert count_rate(lambda _: 3, options) > 0
    with pytest.raises(AssertionError, match="updates are there"):
        count_rate(lambda writer: 3 - writer, options)
