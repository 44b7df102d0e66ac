"""What the Spark sinks have in common: options, columns, and how rows are distributed over tasks.

**Distribution.** The pointer of a Kafka partition drops what is below it, and a journal drops what is below its end. If
a Kafka partition or a journal were split over two tasks, the task with the higher numbers might come first, and the
rows of the other would be dropped as already written: lost, without an error. No task can see the rows of another, and
Spark does not tell a Python sink how its input is distributed. A check at the end of the batch comes too late. So these
sinks require a statement beforehand, in one of two ways:

- `in_order(df)` shuffles and sorts, and records that in the metadata of the column whose numbers rise. Spark passes
  metadata through `select` and `filter`, up to the sink.
- An option, `whole_partitions` or `whole_journals`, is your promise. For records of Kafka it holds where nothing
  between the source and the sink shuffles, and the source has neither `minPartitions` nor `maxRecordsPerPartition`.

Spark cannot sort a stream. There each task sorts its part of the batch itself, in memory, before it writes a row.

A shuffle *behind* `in_order` splits things again, and a promise can be wrong. Both are detected at the end of the
batch, when two tasks report the same partition or journal: then the write fails, at every attempt. It is late, but not
silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.model.names import suggest

CONFIG: Final = "config"
KAFKA_PREFIX: Final = "kafka."
_OF_SPARK: Final = frozenset({"checkpointlocation"})
"""Options of Spark itself that it passes on, in lower case."""

Overrides = Mapping[str, Mapping[str, str]]
"""Settings by section and key."""


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """The names that `.option(…)` of one format takes: its own, and those that stand for a setting."""

    format: str
    own: frozenset[str] = frozenset()
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Options that are another name for a setting: its section and its key."""
    takes_kafka: bool = False
    """Whether `kafka.NAME` is the property NAME of the Kafka client."""

    def read(self, given: Mapping[str, str]) -> FormatOptions:
        """The given options; refuses an unknown one and suggests the name that was probably meant."""
        own: dict[str, str] = {}
        overrides: dict[str, dict[str, str]] = {}
        for name, value in given.items():
            if name == CONFIG or name in self.own:
                own[name] = value
            elif name not in _OF_SPARK:
                section, key = self._setting(name)
                overrides.setdefault(section, {})[key] = value
        return FormatOptions(self.format, own, overrides)

    def _setting(self, name: str) -> tuple[str, str]:
        if name in self.settings:
            return self.settings[name]
        if self.takes_kafka and name.startswith(KAFKA_PREFIX):
            return "kafka", name.removeprefix(KAFKA_PREFIX)
        known = sorted({CONFIG, *self.own, *self.settings})
        raise ConfigurationError(
            f"The format {self.format!r} has no option {name!r}{suggest(name, known)}",
            hint=f"It has {', '.join(known)}{f' and {KAFKA_PREFIX}PROPERTY' if self.takes_kafka else ''}.",
        )


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The options of one read or write."""

    format: str
    own: Mapping[str, str]
    overrides: Overrides

    @property
    def config(self) -> str | None:
        """The settings file, on the driver's machine; None for the file and variables that commands read."""
        return self.own.get(CONFIG)

    def get(self, name: str) -> str | None:
        return self.own.get(name)

    def require(self, name: str, why: str) -> str:
        if value := self.own.get(name):
            return value
        raise ConfigurationError(f"The format {self.format!r} needs the option {name!r}: {why}.")

    def flag(self, name: str) -> bool:
        value = self.own.get(name, "false").lower()
        if value not in ("true", "false"):
            raise ConfigurationError(
                f"The option {name!r} of the format {self.format!r} is {value!r}.", hint="Use true or false."
            )
        return value == "true"


# Columns, checked on the driver before a task starts.

BYTES: Final = ("binary", "string")
WHOLE_NUMBER: Final = ("bigint", "int", "smallint", "tinyint")
MOMENT: Final = ("timestamp", "timestamp_ntz")
HEADERS: Final = ("array<struct<key:string,value:binary>>",)
"""The type of Spark's own Kafka source and sink."""
ANYTHING: Final = ()


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    types: tuple[str, ...]
    """Spark's names of the allowed types; empty for any."""
    is_needed: bool = True


def check_columns(sink: str, found: Mapping[str, str], known: Sequence[Column]) -> None:
    """Raises `ConfigurationError` for a column that is missing, unknown or of a wrong type; `found` has the types."""
    names = [column.name for column in known]
    for column in known:
        if column.is_needed and column.name not in found:
            meant = suggest(column.name, [name for name in found if name not in names])
            raise _refusal(sink, f"needs a column {column.name!r}, which the data lacks{meant}", names)
    for name in found:
        if name not in names:
            missing = [each for each in names if each not in found]
            raise _refusal(sink, f"knows no column {name!r}{suggest(name, missing)}", names)
    for column in known:
        _check_type(sink, column, found.get(column.name))


def _check_type(sink: str, column: Column, kind: str | None) -> None:
    if kind is not None and column.types and kind not in column.types:
        raise ConfigurationError(
            f"The column {column.name!r} is {kind}, but the format {sink!r} takes {' or '.join(column.types)}.",
            hint=f"Cast it to {column.types[0]}.",
        )


def _refusal(sink: str, text: str, names: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(f"The format {sink!r} {text}", hint=f"Select some of: {', '.join(names)}.")


class Sink(DataSource):
    """A format that rows can be written to."""

    known_options: ClassVar[KnownOptions]
    known_columns: ClassVar[Sequence[Column]]

    @classmethod
    def name(cls) -> str:
        """What users write into `.format(…)`."""
        return cls.known_options.format

    def check(self, schema: StructType, overwrite: bool) -> FormatOptions:
        """Checks options and columns, and returns the options."""
        options = self.known_options.read(self.options)
        if overwrite:
            raise ConfigurationError(
                f"The format {self.name()!r} appends and never overwrites.",
                hint='Write .mode("append"), or .outputMode("append") in a stream.',
            )
        check_columns(self.name(), types_of(schema), self.known_columns)
        return options

    def distribution(self, schema: StructType, options: FormatOptions, grouping: Grouping) -> Distribution:
        """How rows are distributed over tasks, by metadata or by promise."""
        return read_distribution(grouping, schema[grouping.rising].metadata or {}, options.flag(grouping.promise))


def types_of(schema: StructType) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


# How rows are distributed over tasks.

METADATA_KEY: Final = "inorder"
ROWS_AT_ONCE: Final = 10_000


class Distribution(StrEnum):
    """How rows are distributed over Spark's partitions."""

    SORTED = "sorted"
    """Each group is in one of them, in rising order."""
    WHOLE = "whole"
    """Each group is in one of them, in any order."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which rows belong together for a sink."""

    what: str
    columns: tuple[str, ...]
    """Rows that are equal in these belong together."""
    rising: str
    """The column that orders them."""
    promise: str
    """The option by which users promise it, and what it promises."""
    promised: Distribution

    @property
    def order(self) -> tuple[str, ...]:
        return (*self.columns, self.rising)


KAFKA_PARTITION: Final = Grouping(
    "Kafka partition", ("topic", "partition"), "offset", "whole_partitions", Distribution.SORTED
)
JOURNAL: Final = Grouping("journal", ("id",), "seq_nr", "whole_journals", Distribution.WHOLE)


def in_order(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """The same rows, each Kafka partition or journal whole in one Spark partition: the last step before the sink.

    It costs a shuffle, into `partitions` or `spark.sql.shuffle.partitions` partitions. Records of Kafka are recognized
    by their columns `topic`, `partition` and `offset`, events by `id` and `seq_nr`.
    """
    grouping = grouping_of(df.columns)
    by = grouping.columns
    placed = df.repartition(*by) if partitions is None else df.repartition(partitions, *by)
    if not df.isStreaming:
        placed = placed.sortWithinPartitions(*grouping.order)
    distribution = Distribution.WHOLE if df.isStreaming else Distribution.SORTED
    marked = placed[grouping.rising].alias(grouping.rising, metadata={METADATA_KEY: distribution.value})
    return placed.select(*(marked if name == grouping.rising else placed[name] for name in placed.columns))


def grouping_of(columns: Iterable[str]) -> Grouping:
    found = set(columns)
    for grouping in (KAFKA_PARTITION, JOURNAL):
        if found.issuperset(grouping.order):
            return grouping
    raise ConfigurationError(
        f"Rows with the columns {', '.join(sorted(found))} are neither records of Kafka nor events.",
        hint="in_order needs topic, partition and offset, or id and seq_nr.",
    )


def read_distribution(grouping: Grouping, metadata: Mapping[str, Any], is_promised: bool) -> Distribution:
    """The distribution by the metadata of the rising column, else by promise; raises where there is neither."""
    if (marked := metadata.get(METADATA_KEY)) is not None:
        return Distribution(marked)
    if is_promised:
        return grouping.promised
    raise ConfigurationError(
        f"It is not known whether each {grouping.what} is whole in one Spark partition; if not, rows would be lost.",
        hint="Write inorder.spark.in_order(df) as the last step before the sink. Or, where it is certain"
        f" (docs/pipeline.md), set .option({grouping.promise!r}, True).",
    )


def sorted_rows(
    grouping: Grouping, distribution: Distribution, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task in order; where they are not sorted yet, all of them are held in memory."""
    filled = (batch for batch in batches if batch.num_rows)
    if distribution is Distribution.SORTED:
        yield from filled
    elif held := list(filled):
        ordered = pa.Table.from_batches(held).sort_by([(name, "ascending") for name in grouping.order])
        yield from ordered.to_batches(max_chunksize=ROWS_AT_ONCE)


def require_apart(what: str, tasks: Iterable[Iterable[object]]) -> None:
    """Raises where two tasks had rows of the same thing."""
    seen: set[object] = set()
    for things in tasks:
        for thing in things:
            if thing in seen:
                raise GuaranteeError(
                    f"The {what} {thing} was split over several Spark partitions: rows of it may be lost.",
                    hint="Write inorder.spark.in_order(df), or by_key for Kafka, as the last step before the sink. Then"
                    " compare the target with the source: rows that came too late were not written.",
                )
            seen.add(thing)
