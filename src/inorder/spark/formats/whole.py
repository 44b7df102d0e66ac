"""Whether what belongs together is whole in one Spark partition, and in order there.

The pointer of a Kafka partition drops what is below it, and a journal what is below its end. Were one of them spread
over two tasks, the one with the higher numbers might come first, and the other's rows would be dropped as if they had
been written: lost, without an error. No task can see what another one has, and Spark does not tell a Python sink how
its input is spread. What is found out when all tasks are done comes too late. So these sinks want to be told
beforehand, in one of two ways:

- `in_order(df)` shuffles and sorts, and says so in the metadata of the column whose numbers rise. Spark hands metadata
  on through `select` and `filter`, up to the sink.
- An option, `whole_partitions` or `whole_journals`, is your word for it. For records of Kafka it holds where nothing
  between the source and the sink shuffles, and the source has neither `minPartitions` nor `maxRecordsPerPartition`.

A stream cannot be sorted by Spark. There each task sorts its part of the batch itself, in memory, before it writes a
row.

A shuffle *behind* `in_order` spreads things again, and a word can be wrong. Both are found at the end of the batch,
when two tasks tell of the same thing: then the write fails, each time that it is tried. It is late, but not silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame

from inorder.model.errors import ConfigurationError, GuaranteeError

METADATA_KEY: Final = "inorder"
ROWS_AT_ONCE: Final = 10_000


class Spread(StrEnum):
    """How rows are spread over Spark's partitions."""

    SORTED = "sorted"
    """What belongs together is in one of them, in rising order."""
    WHOLE = "whole"
    """It is in one of them, in any order."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """What belongs together for a sink."""

    what: str
    columns: tuple[str, ...]
    """Rows that agree in these belong together."""
    rising: str
    """The column that orders them."""
    promise: str
    """The option that is your word for it, and what it says."""
    promised: Spread

    @property
    def order(self) -> tuple[str, ...]:
        """By which rows are sorted."""
        return (*self.columns, self.rising)


KAFKA_PARTITION: Final = Grouping(
    "Kafka partition", ("topic", "partition"), "offset", "whole_partitions", Spread.SORTED
)
JOURNAL: Final = Grouping("journal", ("id",), "seq_nr", "whole_journals", Spread.WHOLE)


def in_order(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """The same rows, each Kafka partition or journal whole in one Spark partition: the last step before the sink.

    It costs a shuffle, into `partitions` or as many as `spark.sql.shuffle.partitions` says. Records of Kafka are known
    by their columns `topic`, `partition` and `offset`, events by `id` and `seq_nr`.
    """
    grouping = grouping_of(df.columns)
    by = grouping.columns
    placed = df.repartition(*by) if partitions is None else df.repartition(partitions, *by)
    if not df.isStreaming:
        placed = placed.sortWithinPartitions(*grouping.order)
    spread = Spread.WHOLE if df.isStreaming else Spread.SORTED
    told = placed[grouping.rising].alias(grouping.rising, metadata={METADATA_KEY: spread.value})
    return placed.select(*(told if name == grouping.rising else placed[name] for name in placed.columns))


def grouping_of(columns: Iterable[str]) -> Grouping:
    """What belongs together in rows of these columns."""
    found = set(columns)
    for grouping in (KAFKA_PARTITION, JOURNAL):
        if found.issuperset(grouping.order):
            return grouping
    raise ConfigurationError(
        f"Rows with the columns {', '.join(sorted(found))} are neither records of Kafka nor events.",
        hint="in_order needs topic, partition and offset, or id and seq_nr.",
    )


def spread_of(grouping: Grouping, metadata: Mapping[str, Any], is_promised: bool) -> Spread:
    """What is said of the rows, by the metadata of the column that rises or by you."""
    if (told := metadata.get(METADATA_KEY)) is not None:
        return Spread(told)
    if is_promised:
        return grouping.promised
    raise ConfigurationError(
        f"Nothing says that each {grouping.what} is whole in one Spark partition; were it not, rows would be lost.",
        hint="Write inorder.spark.in_order(df) as the last step before the sink. Or, where it is sure to be so"
        f" (docs/pipeline.md), say .option({grouping.promise!r}, True).",
    )


def sorted_rows(grouping: Grouping, spread: Spread, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task in their order; where they are not sorted yet, all are held in memory meanwhile."""
    filled = (batch for batch in batches if batch.num_rows)
    if spread is Spread.SORTED:
        yield from filled
    elif held := list(filled):
        ordered = pa.Table.from_batches(held).sort_by([(name, "ascending") for name in grouping.order])
        yield from ordered.to_batches(max_chunksize=ROWS_AT_ONCE)


def require_apart(what: str, tasks: Iterable[Iterable[object]]) -> None:
    """Raises where two tasks had rows of one thing."""
    seen: set[object] = set()
    for things in tasks:
        for thing in things:
            if thing in seen:
                raise GuaranteeError(
                    f"The {what} {thing} was spread over several Spark partitions: rows of it may be lost.",
                    hint="Write inorder.spark.in_order(df), or by_key for Kafka, as the last step before the sink. Then"
                    " compare what was written with where it came from: what came too late was not written.",
                )
            seen.add(thing)
