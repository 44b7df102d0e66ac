"""A record at which our own code fails is that record's dead letter; no record ends the job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Slice
from inorder.model.errors import TransientError
from inorder.pipeline import decoding
from inorder.pipeline.decoding import UNEXPECTED, Decoder, Rejected, decode_from
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from tests.fakes.table_store import MemoryTableStore, StoredRow, message, slice_of
from tests.selection import examples

MAPPING = TableMapping("demo", "upsert", "messages", fields=(("enabled", "boolean"), ("data", "text")))
ALL = TableMapping("demo", "upsert", "messages", fields=(("data", "text"), ("tree", "json"), ("at", "timestamp")))


@pytest.mark.parametrize("levels", [10, 254, 255, 900, 940, 980, 1_000, 1_020, 1_023, 5_000])
@pytest.mark.parametrize("field", ["id", "data", "tree", "at", "unknown"])
def test_a_field_nested_however_deeply_is_stored_or_refused_alone(levels: int, field: str) -> None:
    value = b'{"id":1,"data":"x","%s":%s%s}' % (field.encode(), b"[" * levels, b"]" * levels)
    decided = decode_from(0, ALL, slice_of((0, value), (1, message(2, data="y"))))
    assert [row.key for row in decided.rows if row.key != 1] == [2]
    assert len(decided.rows) + len(decided.letters) == 2


@pytest.mark.parametrize("micros", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_is_no_date_does_not_keep_a_record_from_being_buried(micros: int) -> None:
    [letter] = decode_from(0, MAPPING, replace(slice_of((0, b"?")), timestamps=[micros])).letters
    assert (letter.code, letter.timestamp) == ("not-json", None)


def test_any_error_of_decoding_is_the_dead_letter_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = orjson.loads

    def fail(value: bytes) -> object:
        if b"poison" in value:
            raise ZeroDivisionError("a flaw\nof a library \ud800 \0")
        return loads(value)

    monkeypatch.setattr(orjson, "loads", fail)
    store = MemoryTableStore()
    outcome = apply_slice(store, MAPPING, slice_of((0, message(1, data="poison")), (1, message(2, data="fine"))))
    assert (outcome.applied, outcome.rejected) == (1, 1)
    [letter] = store.contents.letters.values()
    assert (letter.code, letter.detail) == (UNEXPECTED, "Decoding it failed: ZeroDivisionError: a flaw")


def test_running_out_of_memory_is_no_records_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_value: bytes) -> object:
        raise MemoryError

    monkeypatch.setattr(orjson, "loads", fail)
    with pytest.raises(MemoryError):
        Decoder(MAPPING).decode(None, b"{}")


def test_a_detail_can_be_stored_whatever_it_holds() -> None:
    letter = decoding.dead_letter(slice_of((0, b"?")), 0, UNEXPECTED, "a \0 and \ud800")
    assert letter.detail == "a \\0 and \\ud800"


def fails_at(*poison: str) -> Callable[[StoredRow], bool]:
    """A store whose driver cannot encode some values."""

    def encode(row: StoredRow) -> bool:
        if row.values[1] in poison:
            raise UnicodeEncodeError("utf-8", str(row.values[1]), 0, 1, "a flaw of a driver")
        return row.values[1] == "bad"

    return encode


@examples(60)
@given(st.lists(st.sampled_from(["ok", "ok", "ok", "bad", "poison", "garbage"]), min_size=1, max_size=40))
def test_exactly_the_records_that_fail_alone_are_buried_and_the_others_applied(kinds: list[str]) -> None:
    store = MemoryTableStore(refuses=fails_at("poison"))
    values = [b"?" if kind == "garbage" else message(key, data=kind) for key, kind in enumerate(kinds)]
    outcome = apply_slice(store, MAPPING, slice_of(*enumerate(values)))
    assert set(store.contents.rows) == {key for key, kind in enumerate(kinds) if kind == "ok"}
    codes = {"bad": "refused-by-database", "poison": UNEXPECTED, "garbage": "not-json"}
    found = {at[2]: letter.code for at, letter in store.contents.letters.items()}
    assert found == {key: codes[kind] for key, kind in enumerate(kinds) if kind != "ok"}
    assert (outcome.read, outcome.next_offset) == (len(kinds), len(kinds))
    assert outcome.applied + outcome.rejected == len(kinds)


def test_the_slice_is_still_one_commit_and_the_reason_is_the_last_line(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryTableStore(refuses=fails_at("poison"))
    records = [(key, message(key, data="poison" if key in (7, 700) else "ok")) for key in range(1_000)]
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        assert apply_slice(store, MAPPING, slice_of(*records)).rejected == 2
    assert len(store.contents.tallies["upsert", 0]) == 1
    assert [vars(record)["offset"] for record in caplog.records] == [7, 700]
    letter = store.contents.letters["upsert", 0, 7]
    assert letter.detail.startswith("Applying it failed: UnicodeEncodeError: 'utf-8' codec can't encode")


def test_records_of_one_key_around_a_poison_record_are_applied_in_order() -> None:
    store = MemoryTableStore(refuses=fails_at("poison"))
    values = [message(1, data="a"), message(1, data="poison"), message(1, enabled=True)]
    assert apply_slice(store, MAPPING, slice_of(*enumerate(values))).applied == 2
    assert store.contents.rows[1] == StoredRow((True, "a"), (0, 2))


class _Cramped(MemoryTableStore):
    """Fails for more than two rows at once, whatever they are."""

    def __init__(self) -> None:
        super().__init__(refuses=lambda _: self._count())
        self.rows = 0

    def _count(self) -> bool:
        self.rows += 1
        if self.rows > 2:
            raise IndexError("too many rows")
        return False

    def slice_transaction(self, topic, partition):  # type: ignore[no-untyped-def]  # as its base
        self.rows = 0
        return super().slice_transaction(topic, partition)


def test_a_slice_that_fails_only_as_a_whole_is_applied_in_halves() -> None:
    store = _Cramped()
    outcome = apply_slice(store, MAPPING, slice_of(*((key, message(key, data="x")) for key in range(7))))
    assert (outcome.applied, outcome.read, outcome.next_offset) == (7, 7, 7)
    assert store.contents.letters == {}


def test_a_fault_of_the_environment_while_poison_is_looked_for_is_raised() -> None:
    def fails(row: StoredRow) -> bool:
        if row.values[1] == "poison":
            raise ValueError(row)
        raise TransientError("the disk is full")

    store = MemoryTableStore(refuses=fails)
    with pytest.raises(TransientError, match="the disk is full"):
        apply_slice(store, MAPPING, slice_of((0, message(1, data="poison")), (1, message(2, data="ok"))))
    assert store.contents.letters == {}


def test_what_a_publisher_is_told_about_such_a_message_is_a_refusal() -> None:
    nested = b'{"id":1,"data":%s%s}' % (b"[" * 1_000, b"]" * 1_000)
    decided = Decoder(MAPPING).decode(None, nested)
    assert isinstance(decided, Rejected)
    # Python 3.12 and newer show a thousand levels, of which the detail has the first.
    assert ("nested too deeply" if sys.version_info < (3, 12) else "is a JSON array, not text: [[[") in decided.detail
    assert len(decided.detail) < 200


def test_an_outage_while_partitions_are_counted_is_no_fault_of_a_record() -> None:
    def away() -> bool:
        raise TransientError("The database is away.")

    values = [b'{"id": 1, "data": "x"}']
    batch = Slice("t", 0, [0], [None], values, [0], ())
    with pytest.raises(TransientError):
        decode_from(0, TableMapping("messages", "t", "messages"), batch, away)
