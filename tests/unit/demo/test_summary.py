"""The summary is correct for a run, and has exactly the documented fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import orjson

from inorder.demo.load import Committed
from inorder.demo.path import Position, summarise
from inorder.kafka.readers import ReadRecord

ENTRIES = [
    Committed(1, 1, {"enabled": True, "data": "a"}, is_valid=True),
    Committed(1, 2, {"data": "b"}, is_valid=True),
    Committed(2, 1, {"enabled": "perhaps"}, is_valid=False),
    Committed(2, 2, {"enabled": False}, is_valid=True),
]


def record(key: int, place: int, offset: int) -> ReadRecord:
    value = orjson.dumps({"id": key, "place": place})
    return ReadRecord("t", key % 4, offset, str(key).encode(), value, (), 0)


@dataclass(frozen=True)
class Found:
    """What a path would show after the run."""

    seen: list[ReadRecord] = field(
        default_factory=lambda: [record(1, 1, 0), record(1, 2, 1), record(2, 1, 0), record(2, 2, 1)]
    )
    table: dict[int, dict[str, object]] = field(
        default_factory=lambda: {1: {"enabled": True, "data": "b"}, 2: {"enabled": False, "data": None}}
    )
    at: Position = field(default_factory=lambda: Position(waiting=0, applied=3, rejected=1))

    def records(self) -> list[ReadRecord]:
        return self.seen

    def rows(self) -> dict[int, dict[str, object]]:
        return self.table

    def position(self) -> Position:
        return self.at


def test_a_faithful_run_holds_and_names_every_figure() -> None:
    summary = summarise(Found(), ENTRIES, {"write": 1.234, "total": 2.0})
    assert summary.holds
    assert summary.as_dict() == {
        "committed": 4,
        "published": 4,
        "applied": 3,
        "rejected": 1,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "seconds": {"write": 1.23, "total": 2.0},
    }


def test_a_stale_row_is_a_lost_update() -> None:
    stale = replace(Found(), table={1: {"enabled": True, "data": "a"}, 2: {"enabled": False, "data": None}})
    assert summarise(stale, ENTRIES, {}).as_dict()["lost"] == 1


def test_a_record_applied_twice_is_seen_in_the_figures_of_the_pipeline() -> None:
    twice = replace(Found(), at=Position(0, applied=4, rejected=1))
    assert summarise(twice, ENTRIES, {}).as_dict()["duplicated"] == 1


def test_a_record_that_reached_the_topic_but_not_the_table_is_lost() -> None:
    short = replace(Found(), at=Position(0, applied=2, rejected=1))
    assert summarise(short, ENTRIES, {}).as_dict()["lost"] == 1


def test_a_good_record_that_was_rejected_is_lost() -> None:
    strict = replace(Found(), at=Position(0, applied=2, rejected=2))
    assert summarise(strict, ENTRIES, {}).as_dict()["lost"] == 1


def test_an_invalid_record_that_was_not_rejected_breaks_the_run() -> None:
    lax = replace(Found(), at=Position(0, applied=4, rejected=0))
    assert not summarise(lax, ENTRIES, {}).holds


def test_a_key_in_two_partitions_breaks_the_run_even_if_it_was_read_in_order() -> None:
    seen = [record(1, 1, 0), replace(record(1, 2, 0), partition=3), record(2, 1, 0), record(2, 2, 1)]
    assert summarise(replace(Found(), seen=seen), ENTRIES, {}).as_dict()["out_of_order"] == 1
