"""Small writes share a request, within the limits above which a node complains; large ones go alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cassandra.cqltypes import UTF8Type
from cassandra.protocol import ColumnMetadata
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

from inorder.journal.stores.cassandra_replica import (
    CELL_BYTES,
    MANY_ROWS,
    REQUEST_BYTES,
    REQUEST_PARTITIONS,
    Write,
    group_requests,
    write,
)

COLUMNS = [ColumnMetadata("journal", "journal", name, UTF8Type) for name in ("id", "text")]


def statement(name: bytes) -> PreparedStatement:
    made = PreparedStatement(COLUMNS, name, [0], "", "journal", 5, None, None)
    made.is_idempotent = True
    return made


EVENTS, HEAD = statement(b"events"), statement(b"head")


def row(id: str, bytes_: int = 10) -> Write:
    return Write(EVENTS, [[id.encode(), b"x" * bytes_]])


def shape(requests: Iterable[Any]) -> list[list[bytes]]:
    """The ids in each request."""
    found = []
    for each in requests:
        if isinstance(each, BoundStatement):
            found.append([each.values[0]])
        else:
            assert isinstance(each, BatchStatement)
            found.append([values[0] for _, _, values in each._statements_and_parameters])
    return found


def test_small_writes_of_several_journals_are_one_unlogged_batch_that_may_be_repeated() -> None:
    (batch,) = group_requests([row("a"), row("b"), write(HEAD, "c", "text")])
    assert isinstance(batch, BatchStatement)
    assert (batch.batch_type, batch.is_idempotent) == (BatchType.UNLOGGED, True)
    assert batch._statements_and_parameters == [
        (True, b"events", [b"a", b"x" * 10]),
        (True, b"events", [b"b", b"x" * 10]),
        (True, b"head", [b"c", b"text"]),
    ]


def test_it_goes_to_a_node_that_has_its_first_partition() -> None:
    (batch,) = group_requests([row("a"), row("b")])
    assert (batch.keyspace, batch.routing_key) == ("journal", b"a")


def test_one_write_of_one_row_is_no_batch() -> None:
    (alone,) = group_requests([write(HEAD, "a", "text")])
    assert isinstance(alone, BoundStatement)
    assert (alone.values, alone.routing_key, alone.is_idempotent) == ([b"a", b"text"], b"a", True)


def test_the_rows_of_one_journal_are_one_batch_however_many_they_are() -> None:
    many = Write(EVENTS, [[b"a", b"%d" % number] for number in range(MANY_ROWS + 1)])
    large = Write(EVENTS, [[b"b", b"x" * REQUEST_BYTES], [b"b", b"x"]])
    assert shape(group_requests([row("1"), many, row("2"), row("3"), large, row("4")])) == [
        [b"1"],
        [b"a"] * (MANY_ROWS + 1),
        [b"2", b"3"],
        [b"b", b"b"],
        [b"4"],
    ]


def test_a_node_is_not_given_more_partitions_together_than_it_likes() -> None:
    made = shape(group_requests(row(str(number)) for number in range(REQUEST_PARTITIONS + 1)))
    assert [len(each) for each in made] == [REQUEST_PARTITIONS, 1]


def test_a_node_is_not_given_more_bytes_together_than_it_likes() -> None:
    half = REQUEST_BYTES // 2 - 2 * CELL_BYTES - 1
    assert shape(group_requests([row("a", half), row("b", half), row("c", half)])) == [[b"a", b"b"], [b"c"]]
    assert shape(group_requests([row("a", half), row("b", half + 1)])) == [[b"a"], [b"b"]]


def test_nulls_count_as_cells_and_what_is_unset_does_not() -> None:
    assert Write(EVENTS, [[b"abc", None, UNSET_VALUE]]).size == 2 * CELL_BYTES + 3


def test_nothing_is_no_request() -> None:
    assert list(group_requests([])) == []
