"""The journal's benchmark in a tiny size: every case is measured, and what it appended is read back whole."""

from __future__ import annotations

import pytest

from inorder.app import App
from inorder.bench.journal import JournalOptions, bench_journal
from inorder.bench.options import RelaySetting
from inorder.bench.place import BenchPlace
from inorder.embedded import Stack

TINY = JournalOptions(
    events=1_000, writers=2, seconds=0.2, journal_events=20, foreign=100, reads=1, repeats=1, updates=3
)


@pytest.mark.full
def test_every_case_is_measured_and_what_was_appended_is_whole() -> None:
    with BenchPlace(Stack(("postgres", "kafka"), durable=False), lambda _: None, RelaySetting()) as place:
        with App(place.settings) as app:
            app.install_schema("journal")
        figures = bench_journal(place, TINY)
    assert figures.check.verdict.holds, figures.check
    assert figures.check.records == 2 * TINY.rounds * 100 * TINY.batch
    cases = figures.batched_per_second, figures.singles_per_second, figures.updates_per_second
    assert all(rate > 0 for case in cases for rate in case)
    assert [len(times) for times in (figures.warm_ms, figures.kafka_ms)] == [1, 1]
