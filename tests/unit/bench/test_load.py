"""Every process makes the same records, and a reader identifies each of them."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from inorder.bench.load import LIVE_FIRST, VALUE_BYTES, Load, chunks, event_of, mark_of, value_of, with_schema


def test_a_load_is_the_same_each_time() -> None:
    load = Load(rows=50, keys=7)
    assert list(load.records()) == list(load.records())


def test_values_have_a_hundred_bytes_whatever_they_carry() -> None:
    values = [value for _, value in Load(1_000, 10).records()]
    values.append(value_of(LIVE_FIRST + 99_999, 9_999_999_999_999_999_999))
    assert {len(value) for value in values} == {VALUE_BYTES}


def test_a_reader_finds_key_and_place_of_each_record() -> None:
    load = Load(rows=23, keys=5)
    assert [event_of(value) for _, value in load.records()] == list(load.events())


def test_a_record_is_keyed_by_the_id_in_its_value() -> None:
    for key, value in Load(rows=12, keys=4).records():
        assert int(key) == event_of(value)[0]


def test_each_key_counts_its_places_without_holes() -> None:
    places: dict[object, list[int]] = {}
    for key, place in Load(rows=23, keys=5).events():
        places.setdefault(key, []).append(place)
    assert Counter(map(len, places.values())) == {5: 3, 4: 2}
    assert all(of_key == list(range(1, len(of_key) + 1)) for of_key in places.values())


def test_the_final_rows_hold_the_newest_place_of_each_key() -> None:
    rows = Load(rows=7, keys=3).final_rows()
    assert {key: mark_of(str(row["data"])) for key, row in rows.items()} == {1: 3, 2: 2, 3: 2}
    assert rows[1]["enabled"] is False
    assert rows[2]["enabled"] is True


@pytest.mark.parametrize("mark", [1, 42, 1_763_000_000_000_000_000])
def test_a_mark_is_read_as_it_was_written(mark: int) -> None:
    assert event_of(value_of(8, mark)) == (8, mark)


def test_chunks_hold_everything_once_and_in_order() -> None:
    assert list(chunks(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(chunks([], 3)) == []


def test_headers_are_the_same_on_every_record_of_a_load() -> None:
    assert Load(rows=1, keys=1).header_pairs == []
    assert [name for name, _ in Load(rows=1, keys=1, headers=2).header_pairs] == ["header-1", "header-2"]


def test_a_fifth_of_a_load_with_partials_says_nothing_of_enabled_and_is_as_long() -> None:
    load = Load(rows=1_000, keys=10, has_partials=True)
    values = [orjson.loads(value) for _, value in load.records()]
    assert sum("enabled" not in value for value in values) == 200
    assert {len(value) for _, value in load.records()} == {VALUE_BYTES}
    assert all("enabled" in orjson.loads(value) for _, value in Load(rows=100, keys=10).records())


@pytest.mark.parametrize("rows", [1, 4, 9, 50, 333])
def test_the_final_rows_of_a_load_with_partials_are_its_fold(rows: int) -> None:
    load = Load(rows, keys=4, has_partials=True)
    folded: dict[int, dict[str, object]] = {}
    for _, value in load.records():
        fields = orjson.loads(value)
        folded.setdefault(fields.pop("id"), {"enabled": None}).update(fields)
    assert load.final_rows() == folded


def test_a_load_can_be_sent_in_two_parts() -> None:
    whole = Load(rows=23, keys=5, has_partials=True)
    assert [*Load(rows=10, keys=5, has_partials=True).records(), *whole.records(first=10)] == list(whole.records())


def test_a_value_with_its_schema_is_one_document_around_the_same_fields() -> None:
    wrapped = orjson.loads(with_schema(value_of(7, 42)))
    assert wrapped["payload"] == orjson.loads(value_of(7, 42))
    assert [field["field"] for field in wrapped["schema"]["fields"]] == list(wrapped["payload"])
