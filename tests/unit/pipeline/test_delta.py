"""Where a run on a Delta table begins, what its commits say, and the columns of a batch: decided without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import Pointer
from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.pipeline.delta import (
    BatchColumns,
    CommittedPointers,
    DeltaCommit,
    DeltaSql,
    LostPointers,
    NoPointers,
    begin_at,
    decode_metadata,
    encode_metadata,
    find_pointers,
    missing_columns,
)
from inorder.pipeline.job import TableTarget
from inorder.pipeline.lake import FoldPlan, LakeWork
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import NULL, FoldedRow
from inorder.pipeline.stores.table import SqlTableStores
from tests.selection import examples

MAPPING = TableMapping("upsert:messages", "t", "messages", target="delta:/lake/messages")
POINTERS = {"t": {0: Pointer(5, 1, "id"), 1: Pointer(7, 1, None)}}


# What a commit says.


@examples(100)
@given(
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.dictionaries(
        st.text(min_size=1, max_size=9),
        st.dictionaries(
            st.integers(0, 999),
            st.builds(Pointer, st.integers(0, 2**62), st.integers(0, 99), st.none() | st.text(max_size=9)),
        ),
    ),
)
def test_a_commit_says_what_was_written(number: int, base: int, pointers: dict[str, dict[int, Pointer]]) -> None:
    committed = CommittedPointers(number, base, pointers)
    assert decode_metadata("p", encode_metadata("p", committed)) == committed
    assert decode_metadata("q", encode_metadata("p", committed)) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "loaded by hand",
        "[]",
        "1",
        '{"inorder":2,"pipeline":"p"}',
        '{"inorder":1,"pipeline":"p"}',
        '{"inorder":1,"pipeline":"p","number":1,"base":0,"pointers":[]}',
        '{"inorder":1,"pipeline":"p","number":1,"base":0,"pointers":{"t":{"0":[1]}}}',
        '{"inorder":1,"pipeline":"p","number":1,"base":0,"pointers":{"t":{"x":[1,0,null]}}}',
        '{"inorder":1,"pipeline":"p","number":"many","base":0,"pointers":{}}',
    ],
)
def test_metadata_of_other_programs_says_nothing(text: str | None) -> None:
    assert decode_metadata("p", text) is None


# Which commit belongs to the rows.


def ours(version: int, number: int, base: int | None = None) -> DeltaCommit:
    committed = CommittedPointers(number, version - 1 if base is None else base, {"t": {0: Pointer(number * 10)}})
    return DeltaCommit(version, "MERGE", {}, encode_metadata("p", committed))


def restore(version: int, to: str | None) -> DeltaCommit:
    return DeltaCommit(version, "RESTORE", {"version": to, "timestamp": None})


CREATE = DeltaCommit(0, "CREATE TABLE")


@pytest.mark.parametrize(
    ("commits", "number", "expected"),
    [
        pytest.param([CREATE], None, "fresh", id="a new table"),
        pytest.param(
            [DeltaCommit(2, "WRITE", {"mode": "Append"}), DeltaCommit(1, "WRITE"), CREATE],
            None,
            "fresh",
            id="others",
        ),
        pytest.param([ours(2, 2), ours(1, 1), CREATE], 2, 2, id="the newest"),
        pytest.param([DeltaCommit(3, "OPTIMIZE"), ours(2, 2), ours(1, 1)], 2, 2, id="maintained"),
        pytest.param([DeltaCommit(3, "MERGE", {}, "by hand"), ours(2, 2)], 2, 2, id="another program's metadata"),
        pytest.param([DeltaCommit(9, "OPTIMIZE")], 2, "unknown", id="the log lost it"),
        pytest.param([ours(2, 2, base=0)], 2, "unknown", id="the log lost what came before it"),
        pytest.param([ours(3, 2, base=1), DeltaCommit(2, "OPTIMIZE"), ours(1, 1)], 2, 2, id="beside an optimize"),
        pytest.param([restore(4, "1"), ours(3, 3), ours(2, 2), ours(1, 1), CREATE], 3, 1, id="restored"),
        pytest.param([ours(5, 4), restore(4, "1"), ours(3, 3), ours(2, 2), ours(1, 1)], 4, 4, id="written after it"),
        pytest.param(
            [ours(5, 4, base=3), restore(4, "1"), ours(3, 3), ours(2, 2), ours(1, 1), CREATE],
            4,
            1,
            id="a merge beside a restore",
        ),
        pytest.param(
            [restore(5, "3"), ours(4, 4), restore(3, "1"), ours(2, 2), ours(1, 1), CREATE], 4, 1, id="restored twice"
        ),
        pytest.param([restore(3, "0"), ours(2, 2), ours(1, 1), CREATE], 2, "fresh", id="restored to nothing"),
        pytest.param([restore(3, None), ours(2, 2), ours(1, 1), CREATE], 2, "unknown", id="restored to a time"),
        pytest.param([DeltaCommit(3, "CREATE OR REPLACE TABLE AS SELECT"), ours(2, 2)], 2, "unknown", id="replaced"),
        pytest.param([DeltaCommit(3, "WRITE", {"mode": "Overwrite"}), ours(2, 2)], 2, "unknown", id="overwritten"),
    ],
)
def test_the_pointers_of_the_rows_are_found(commits: list[DeltaCommit], number: int | None, expected: object) -> None:
    found = find_pointers(iter(commits), "p", number)
    match found:
        case CommittedPointers(number=which):
            assert which == expected
        case NoPointers():
            assert expected == "fresh"
        case LostPointers():
            assert expected == "unknown"


def test_no_more_commits_are_read_than_needed() -> None:
    def commits() -> Iterator[DeltaCommit]:
        yield DeltaCommit(3, "OPTIMIZE")
        yield ours(2, 2)
        raise AssertionError

    assert find_pointers(commits(), "p", 2) == CommittedPointers(2, 1, {"t": {0: Pointer(20)}})


# Where a run begins.

FOUND = CommittedPointers(4, 3, {"t": {0: Pointer(50, 1, "id")}})


@pytest.mark.parametrize(
    ("found", "ledger", "first", "newest", "expected"),
    [
        pytest.param(FOUND, Pointer(40, 1, "id"), 0, 0, (50, 1), id="the copy is behind"),
        pytest.param(FOUND, Pointer(60, 1, "id"), 0, 0, (50, 1), id="the table went back"),
        pytest.param(FOUND, Pointer(0, 0), 0, 0, (50, 1), id="the copy was lost"),
        pytest.param(FOUND, Pointer(0, 2, "new"), 0, 0, (0, 2), id="reset to another topic"),
        pytest.param(FOUND, Pointer(55, 1, "id"), 55, 0, (55, 1), id="a loss was accepted"),
        pytest.param(FOUND, Pointer(40, 1, "id"), 55, 0, (50, 1), id="a loss was not accepted"),
        pytest.param(NoPointers(), Pointer(10), 10, 0, (10, 0), id="a new table"),
        pytest.param(NoPointers(), Pointer(11), 10, 0, None, id="its predecessor is gone"),
        pytest.param(LostPointers("x"), Pointer(10, 1), 10, 1, None, id="unknown"),
        pytest.param(LostPointers("x"), Pointer(10, 2), 10, 1, (10, 2), id="unknown, and reset"),
    ],
)
def test_a_partition_begins_where_the_table_is(
    found: CommittedPointers | NoPointers | LostPointers,
    ledger: Pointer,
    first: int,
    newest: int,
    expected: tuple[int, int] | None,
) -> None:
    if expected is None:
        with pytest.raises(GuaranteeError) as caught:
            begin_at(MAPPING, "t", found, {0: ledger}, {0: first}, newest)
        assert "/lake/messages" in caught.value.message
        assert "inorder pipeline reset t --from-first" in caught.value.hint
    else:
        begun = begin_at(MAPPING, "t", found, {0: ledger}, {0: first}, newest)[0]
        assert (begun.next_offset, begun.generation) == expected


def test_a_partition_and_a_topic_that_the_table_does_not_know_begin_as_the_database_says() -> None:
    new = {0: Pointer(50, 1, "id"), 1: Pointer(3, 1, "id")}
    assert begin_at(MAPPING, "t", FOUND, new, {0: 0, 1: 3}, 0)[1] == new[1]
    assert begin_at(MAPPING, "t.g1", FOUND, new, {0: 0, 1: 3}, 0) == new


# The columns of a batch.

TYPES = (
    ("flag", "boolean"),
    ("small", "integer"),
    ("big", "bigint"),
    ("ratio", "double"),
    ("price", "numeric"),
    ("name", "text"),
    ("at", "timestamp"),
    ("day", "date"),
    ("ref", "uuid"),
    ("doc", "json"),
)


def test_every_type_has_a_column_and_absent_fields_have_no_bit() -> None:
    columns = BatchColumns(TableMapping("p", "t", "x", fields=TYPES, target="delta:/x"))
    values = (True, 1, 2, 0.5, "1.50", "n", "2026-01-31 12:00:00.000001+00:00", "2026-01-31", "u", "{}")
    rows = [
        FoldedRow(1, values, 10, 1),
        FoldedRow(2, (None,) * 9 + (NULL,), 11, 2, True),
        FoldedRow(3, None, 12, 1),
    ]
    full, partial, deleted = columns.encode(rows, 4).to_pylist()
    moment, day = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC), date(2026, 1, 31)
    assert [full[f"v{at}"] for at in range(10)] == [True, 1, 2, 0.5, "1.50", "n", moment, day, "u", "{}"]
    assert (full["k0"], full["mask0"], full["version_generation"], full["version_offset"]) == (1, 1023, 4, 10)
    assert (partial["mask0"], partial["v9"], partial["wavered"], partial["deleted"]) == (512, None, True, False)
    assert (deleted["mask0"], deleted["deleted"], {deleted[f"v{at}"] for at in range(10)}) == (1023, True, {None})


def test_more_fields_than_a_mask_has_bits_have_another_mask() -> None:
    fields = tuple((f"f{at}", "integer") for at in range(70))
    columns = BatchColumns(TableMapping("p", "t", "x", fields=fields, target="delta:/x"))
    values: list[Any] = [None] * 70
    values[0] = values[64] = 1
    [row] = columns.encode([FoldedRow(1, tuple(values), 0, 1)], 0).to_pylist()
    assert (row["mask0"], row["mask1"]) == (1, 2)
    assert "(s.mask1 & 2L) <> 0 THEN s.v64" in DeltaSql(columns.mapping).merge("b")


@pytest.mark.parametrize(("mode", "clauses"), [("upsert", (1, 1)), ("insert", (0, 1)), ("update", (1, 0))])
def test_the_clauses_of_a_merge_follow_the_mode(mode: str, clauses: tuple[int, int]) -> None:
    merge = DeltaSql(TableMapping("p", "t", "x", mode=mode, target="delta:/x")).merge("b")
    assert (merge.count("WHEN MATCHED"), merge.count("WHEN NOT MATCHED")) == clauses
    assert "delta.`/x`" in merge


def test_missing_columns_are_named() -> None:
    present = ["ID", "enabled", "version_generation", "version_offset", "updated_at"]
    assert missing_columns(MAPPING, present) == ["data", "version_deleted"]


# The tasks.


def records(*some: tuple[int, bytes | None, bytes | None], partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * len(some),
            "partition": pa.array([partition] * len(some), pa.int32()),
            "offset": [offset for offset, _, _ in some],
            "key": pa.array([key for _, key, _ in some], pa.binary()),
            "value": pa.array([value for _, _, value in some], pa.binary()),
            "timestamp": pa.array([0] * len(some), pa.timestamp("us", tz="UTC")),
        }
    )


def plan(pointers: Mapping[tuple[str, int], Pointer], url: str = "sqlite:///unused.db") -> FoldPlan:
    return FoldPlan((TableTarget(MAPPING, SqlTableStores(url, MAPPING)),), pointers, {"t": len(pointers)})


def test_a_task_folds_all_of_its_partition_and_says_how_far_it_came() -> None:
    one = records((4, b"1", b'{"id":1,"data":"old"}'), (5, b"1", b'{"id":1,"enabled":true}'), (6, b"2", None))
    two = records((9, b"1", b'{"id":1,"data":"b"}'), (10, b"3", b'{"id":3}'))
    *rows, text = plan({("t", 0): Pointer(5, 2)}).run([one, two])
    [found] = [batch.column("t0").to_pylist() for batch in rows]
    assert [(row["k0"], row["v0"], row["v1"], row["version_offset"], row["deleted"]) for row in found] == [
        (1, True, "b", 9, False),
        (2, None, None, 6, True),
    ]
    outcome = text.column("outcome").to_pylist()[0]
    assert '"next_offset":11' in outcome
    assert '"read":5,"applied":3' in outcome
    assert '"ignored":1,"rejected":0,"replayed":1' in outcome


def test_a_task_reads_nothing_behind_the_end_of_a_generation() -> None:
    batch = records((4, b"1", b'{"id":1,"data":"a"}'), (5, b"1", b'{"id":1,"data":"b"}'))
    *rows, text = plan({("t", 0): Pointer(0, 0, end=5)}).run([batch])
    assert rows[0].column("t0").to_pylist()[0]["v1"] == "a"
    assert '"next_offset":5' in text.column("outcome").to_pylist()[0]


def test_a_task_with_records_out_of_order_raises() -> None:
    with pytest.raises(GuaranteeError, match="Out of order"):
        list(plan({("t", 0): Pointer()}).run([records((5, b"1", None), (4, b"1", None))]))


def test_other_engines_and_formats_refuse_a_delta_table() -> None:
    work = LakeWork((TableTarget(MAPPING, SqlTableStores("sqlite:///unused.db", MAPPING)),))
    with pytest.raises(ConfigurationError, match="micro-batch"):
        work.open()
    assert work.bounded((("t", (3,)),)).ends == (("t", (3,)),)
