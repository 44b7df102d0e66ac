"""The topic tells whether a newer record of a key came, or that it cannot tell."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from inorder.engines.slice_work import Reading
from inorder.model.errors import TransientError
from inorder.pipeline import dead_letters as module
from inorder.pipeline.dead_letters import NewerRecords, Unknown
from inorder.pipeline.decoding import Decoder
from inorder.pipeline.stores.ports import RowKey
from tests.fakes.table_store import message
from tests.unit.pipeline.old_letters import PLACE, RELAXED, MemoryReader, MemorySource, Record


def record(offset: int, key: int) -> Record:
    return offset, str(key).encode(), message(key, data="x")


def records_of(source: MemorySource, start: int = 0, keys: Collection[RowKey] = (7,)) -> NewerRecords:
    by_kafka_key: dict[bytes | None, Collection[RowKey]] = {str(key).encode(): [key] for key in keys}
    return NewerRecords(source, PLACE, start, Decoder(RELAXED).decode, by_kafka_key)


def test_the_first_record_behind_an_offset_is_found() -> None:
    source = MemorySource([record(2, 7), record(5, 8), record(6, 7), record(9, 7)], end=10)
    newer = records_of(source)
    assert newer.after(7, 1, 10, apart_from=()) == 2
    assert newer.after(7, 2, 10, apart_from=()) == 6
    assert newer.after(7, 2, 10, apart_from={6}) == 9
    assert newer.after(7, 9, 10, apart_from=()) is None


def test_records_at_the_end_and_behind_it_do_not_count() -> None:
    newer = records_of(MemorySource([record(2, 7), record(6, 7)], end=10))
    assert newer.after(7, 2, 6, apart_from=()) is None
    assert newer.after(7, 2, 7, apart_from=()) == 6


def test_offsets_without_records_are_no_gap_and_the_end_is_believed() -> None:
    newer = records_of(MemorySource([record(2, 7)], end=10))
    assert newer.after(7, 2, 10, apart_from=()) is None


def test_what_was_read_is_not_read_again() -> None:
    source = MemorySource([record(offset, 7) for offset in range(20)], end=20)
    newer = records_of(source)
    for offset in range(5, 18):
        assert newer.after(7, offset, 19, apart_from=()) == (offset + 1 if offset < 18 else None)
    assert source.reads == 1
    source.records.append(record(20, 7))
    source.end = 21
    assert newer.after(7, 19, 21, apart_from=()) == 20
    assert source.reads == 2


@pytest.mark.parametrize(("first", "end"), [(4, 10), (0, 8)])
def test_a_topic_that_does_not_hold_all_that_is_needed_cannot_tell(first: int, end: int) -> None:
    newer = records_of(MemorySource([record(7, 7)], first=first, end=end), start=3)
    assert isinstance(newer.after(7, 2, 9, apart_from=()), Unknown)


def test_a_topic_that_is_gone_cannot_tell() -> None:
    newer = NewerRecords(MemorySource(), ("another", 0), 0, Decoder(RELAXED).decode, {b"7": [7]})
    assert newer.after(7, 0, 5, apart_from=()) == Unknown(
        "another[0] does not exist; only offsets 0 to 4 show whether the key has a newer record."
    )


def test_a_topic_that_stands_still_is_an_error_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(MemoryReader, "read", lambda *_: Reading([], frozenset()))
    newer = records_of(MemorySource([record(2, 7)], end=10))
    with pytest.raises(TransientError, match="timed out"):
        newer.after(7, 1, 10, apart_from=())
