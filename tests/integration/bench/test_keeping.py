"""The strategy `polling` keeps its rows, so a trial is whole once the offset has passed them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inorder.bench.contender import OursKeeping, our_side
from inorder.bench.load import Load, Schedule
from inorder.bench.options import RelayOptions, RelaySetting
from inorder.bench.place import BenchPlace
from inorder.embedded import Stack
from inorder.kafka.readers import read_back

ROWS = 2_000
SETTING = RelaySetting.of("polling", "exactly-once", "native")
OPTIONS = RelayOptions(rows=ROWS, schedule=Schedule(rate=100, seconds=1.0, warm_seconds=0.5), setting=SETTING)


@pytest.fixture(scope="module")
def place() -> Iterator[BenchPlace]:
    """Servers with the tables of the strategy."""
    with BenchPlace(Stack(("postgres", "kafka"), durable=False), lambda _: None, SETTING) as servers:
        yield servers


def kept(place: BenchPlace) -> tuple[object, ...]:
    """How many rows there are, and how many of them the offset has passed."""
    row = place.watching.execute(
        'SELECT count(*), count(*) FILTER (WHERE id <= (SELECT "offset" FROM outbox_offsets)) FROM outbox_events'
    ).fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.full
def test_a_backlog_is_carried_to_its_end_and_read_back_trial_after_trial(place: BenchPlace) -> None:
    ours = our_side(place, OPTIONS)
    assert isinstance(ours, OursKeeping)
    for number, headers in enumerate((0, 1)):
        trial = ours.drain(Load(ROWS, 100, headers=headers), number)
        assert trial.is_whole
        assert trial.check.verdict.holds, trial.check
        assert trial.check.records == ROWS
        assert kept(place) == (ROWS, ROWS)
        first = next(iter(read_back(place.kafka, f"inorder-drain-{number}")))
        assert len(first.headers) == headers


@pytest.mark.full
def test_live_rows_are_timed_from_their_commit(place: BenchPlace) -> None:
    trial = our_side(place, OPTIONS).live(1)
    assert trial.check.verdict.holds, trial.check
    assert trial.since_commit["count"] == 100
