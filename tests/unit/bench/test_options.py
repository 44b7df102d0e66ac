"""Options say which cases there are, and refuse those that cannot be."""

from __future__ import annotations

import pytest

from inorder.bench.load import Load, Schedule
from inorder.bench.options import WITHOUT_HEADERS, RelayOptions, RelaySetting
from inorder.model.errors import ConfigurationError


def test_every_number_of_keys_is_drained_with_every_number_of_headers() -> None:
    assert RelayOptions(rows=5, keys=(10, 1), headers=(0, 1)).loads == [
        Load(5, 10, 0),
        Load(5, 1, 0),
        Load(5, 10, 1),
        Load(5, 1, 1),
    ]


def test_by_default_there_are_at_least_three_trials_of_six_backlogs_and_live_records() -> None:
    options = RelayOptions()
    assert (options.rows, len(options.loads), options.repeats, options.live) == (200_000, 6, 3, True)
    assert options.setting == RelaySetting("exactly-once", "drain", "native")


def test_headers_in_a_layout_without_headers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--headers 0"):
        RelayOptions(setting=RelaySetting(layout="debezium"))
    assert RelayOptions(headers=(0,), setting=RelaySetting(layout="debezium")).loads


def test_the_live_phase_may_last_longer_than_its_schedule() -> None:
    options = RelayOptions(schedule=Schedule(500, 30.0, 5.0))
    assert options.live_cap > 35.0
    assert options.live_task == {"rate": 500, "seconds": 30.0, "warm_seconds": 5.0}


def test_the_topic_lock_is_measured_on_its_own_layout_whatever_else_is_asked_for() -> None:
    setting = RelaySetting.of("topic-lock", "exactly-once", "native")
    assert setting == RelaySetting("at-least-once", "topic-lock", "deimos")
    assert RelaySetting.of("drain", "exactly-once", "goharvest").layout == "goharvest"


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_polling_is_measured_on_its_own_layout_with_the_delivery_that_is_asked_for(delivery: str) -> None:
    assert RelaySetting.of("polling", delivery, "native") == RelaySetting(delivery, "polling", "trendyol")


@pytest.mark.parametrize("layout", WITHOUT_HEADERS)
def test_headers_are_refused_where_a_layout_has_none(layout: str) -> None:
    with pytest.raises(ConfigurationError, match=layout):
        RelayOptions(10, Schedule(1, 1.0, 0.0), headers=(1,), setting=RelaySetting(layout=layout))
