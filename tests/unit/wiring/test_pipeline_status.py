"""The status of a pipeline out of pointer rows and offsets that wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from inorder.engines.survey import Backlog
from inorder.pipeline.status import PartitionProgress, pointers_of, status_fields

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ROWS = [
    PartitionProgress("upsert:a", "a", 0, 10, 7, 1, 0, 1, 1, NOW - timedelta(seconds=4)),
    PartitionProgress("upsert:a", "a", 1, 5, 5, 0, 0, 0, 0, NOW - timedelta(seconds=90)),
]


def test_sums_offsets_behind_and_the_age_of_the_last_slice() -> None:
    status = status_fields({"a": "upsert:a"}, ROWS, Backlog({("a", 0): 3, ("a", 1): 0}), NOW)
    assert (status["applied"], status["identical"], status["rejected"], status["behind"]) == (12, 1, 1, 3)
    assert status["last_slice_seconds"] == 4.0
    assert [one["behind"] for one in status["partitions"]] == [3, 0]
    assert [one["last_slice_seconds"] for one in status["partitions"]] == [4.0, 90.0]


def test_partitions_that_were_not_begun_are_shown_with_what_waits_in_them() -> None:
    status = status_fields(
        {"a": "upsert:a", "b": "upsert:b"}, ROWS, Backlog({("a", 0): 0, ("a", 1): 0, ("b", 0): 8}), NOW
    )
    assert status["pipelines"] == ["upsert:a", "upsert:b"]
    assert status["partitions"][-1] == {
        "pipeline": "upsert:b", "topic": "b", "partition": 0, "next_offset": 0, "applied": 0, "identical": 0,
        "stale": 0, "ignored": 0, "rejected": 0, "behind": 8, "undecided": None, "oldest_seconds": None,
        "last_slice_seconds": None,
    }  # fmt: skip
    assert status["behind"] == 8


def test_a_partition_whose_topic_is_gone_says_that_nothing_is_known_of_its_end() -> None:
    status = status_fields({"a": "upsert:a"}, ROWS, Backlog({}), NOW)
    assert [one["behind"] for one in status["partitions"]] == [None, None]


def test_pointers_are_those_of_the_rows() -> None:
    assert pointers_of(ROWS) == {("a", 0): 10, ("a", 1): 5}


def test_nothing_at_all_is_a_status_too() -> None:
    status = status_fields({"a": "upsert:a"}, [], Backlog({}), NOW)
    assert (status["behind"], status["last_slice_seconds"], status["partitions"]) == (0, None, [])


def test_what_hides_behind_an_open_transaction_is_shown() -> None:
    found = Backlog({("a", 0): 0, ("a", 1): 2}, {("a", 0): 7, ("a", 1): 0}, {("a", 0): 90.5, ("a", 1): 1.25})
    status = status_fields({"a": "upsert:a"}, ROWS, found, NOW)
    assert (status["behind"], status["undecided"], status["oldest_seconds"]) == (2, 7, 90.5)
    assert [(one["undecided"], one["oldest_seconds"]) for one in status["partitions"]] == [(7, 90.5), (0, 1.25)]
