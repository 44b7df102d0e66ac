"""Writes that are on their way together, in as few requests as Cassandra likes.

A request costs node and driver more than a small row in it, and at some hundred appends a second nearly all that is to
be written is small. So small writes of several journals share a request: an unlogged batch, within the limits above
which a node warns of batches that span partitions (10 partitions, 5 KiB). A write that is larger than that goes alone;
it is one mutation, which no limit counts.

Such a batch promises nothing but to answer when all of it is written. Nothing more is needed: its writes are of
different journals, and every one may be carried out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement, PreparedStatement

TOGETHER: Final = 10
"""Partitions in a batch; a node warns of more (`unlogged_batch_across_partitions_warn_threshold`)."""
TOGETHER_BYTES: Final = 5 * 1024
"""A node warns of more (`batch_size_warn_threshold`), and refuses ten times as much."""
CELL_BYTES: Final = 20
"""What a node counts for a cell beside its value."""
MANY_ROWS: Final = 20
"""Of events, each with a dozen cells: more need not be counted."""

Values: TypeAlias = Sequence[Any]
"""Of one row, as the protocol carries them."""


class Write(NamedTuple):
    """Rows of one partition of the store, all written with one statement."""

    statement: PreparedStatement
    rows: Sequence[Values]

    @property
    def size(self) -> int:
        """About how many bytes a node counts for it."""
        if len(self.rows) > MANY_ROWS:
            return TOGETHER_BYTES
        return sum(CELL_BYTES + len(value or b"") for row in self.rows for value in row if value is not UNSET_VALUE)


def write(statement: PreparedStatement, *values: Any) -> Write:
    """One row, its values encoded by the driver."""
    return Write(statement, [statement.bind(values).values])


def together(writes: Iterable[Write]) -> Iterator[BoundStatement | BatchStatement]:
    """The requests for writes of different partitions; in the same order."""
    some: list[Write] = []
    size = 0
    for each in writes:
        if some and (len(some) == TOGETHER or size + each.size > TOGETHER_BYTES):
            yield _request(some)
            some, size = [], 0
        some.append(each)
        size += each.size
    if some:
        yield _request(some)


def _request(writes: Sequence[Write]) -> BoundStatement | BatchStatement:
    if len(writes) == 1 and len(writes[0].rows) == 1:
        bound = BoundStatement(writes[0].statement)
        bound.values = writes[0].rows[0]
        return bound
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.is_idempotent = True
    for statement, rows in writes:
        bound = BoundStatement(statement)
        for values in rows:
            bound.values = values  # the batch takes the values, not the statement around them
            batch.add(bound)
    return batch
