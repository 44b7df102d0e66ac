"""Lanes: which part of a batch a row belongs to, said by the row itself (`inorder/kafka/batch_log.py` says why)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # the same
from pyspark.sql import DataFrame
from pyspark.sql.functions import hash as hash_of
from pyspark.sql.functions import lit, pmod

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.ports.batch_log import BatchId, BatchLog, Part, Sent
from inorder.ports.outbox_store import OutboxRow

LANE: Final = "lane"
MOST_LANES: Final = 64
"""In one task: each is a producer with a transaction."""

LanedRows = Iterable[tuple[int, list[OutboxRow]]]
"""Rows with the lane that they belong to, in order."""


def by_key(df: DataFrame, lanes: int) -> DataFrame:
    """The same rows with a column `lane`, each lane and so each key whole in one Spark partition.

    It is the last step before the sink `inorder.kafka`, but for `sortWithinPartitions`. Rows without a column `key` are
    spread by their value.
    """
    column = "key" if "key" in df.columns else "value"
    # Spark finds the partition of a row by the same formula, so a Spark partition has one lane.
    return df.repartition(lanes, column).withColumn(LANE, pmod(hash_of(column), lit(lanes)))


def send(log: BatchLog, batch: BatchId | None, rows: LanedRows) -> dict[int, Sent]:
    """Sends the rows of one task, each lane in a transaction of its own."""
    parts: dict[int, Part] = {}
    try:
        for lane, some in rows:
            if lane not in parts:
                _check_number(parts)
                parts[lane] = log.open(lane, batch, {row.topic for row in some})
            parts[lane].add(some)
        return {lane: part.commit() for lane, part in parts.items()}
    except BaseException:
        for part in parts.values():
            part.abort()
        raise


def _check_number(parts: dict[int, Part]) -> None:
    if len(parts) >= MOST_LANES:
        raise ConfigurationError(
            f"A Spark partition has more than {MOST_LANES} lanes, and each is a transaction.",
            hint="A lane is a part of the data, not a row: write inorder.spark.by_key(df, 8).",
        )


def by_lane(records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each lane by themselves, in their order."""
    column = records.column(LANE)
    if column.null_count:
        raise ValidationError(LANE, "a row has none.", hint="Each row needs one: inorder.spark.by_key(df, 8).")
    found = column.unique().to_pylist()
    for lane in found:
        yield lane, records if len(found) == 1 else records.filter(pc.equal(column, lane))
