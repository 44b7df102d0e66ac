"""What the sinks have in common: they add, their options and columns are checked, and their tasks take Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, ClassVar, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from inorder.model.errors import ConfigurationError, GuaranteeError

# What `.option(…)` may say to a format: names of its own, and the settings that one is likely to give alone.

CONFIG: Final = "config"
KAFKA_PREFIX: Final = "kafka."
_OF_SPARK: Final = frozenset({"checkpointlocation"})
"""What Spark hands on although it is not for us; it spells all names in lower case."""

Overrides = Mapping[str, Mapping[str, str]]
"""Sections of the settings with some of their keys."""


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """The options of one format."""

    format: str
    own: frozenset[str] = frozenset()
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Options that are another name for a setting: its section and its key."""
    takes_kafka: bool = False
    """Whether `kafka.NAME` is the property NAME of the Kafka client."""

    def read(self, given: Mapping[str, str]) -> Options:
        """The options that were given; one that is not known is refused, with the one that was probably meant."""
        own: dict[str, str] = {}
        overrides: dict[str, dict[str, str]] = {}
        for name, value in given.items():
            if name == CONFIG or name in self.own:
                own[name] = value
            elif name not in _OF_SPARK:
                section, key = self._setting(name)
                overrides.setdefault(section, {})[key] = value
        return Options(self.format, own, overrides)

    def _setting(self, name: str) -> tuple[str, str]:
        if name in self.settings:
            return self.settings[name]
        if self.takes_kafka and name.startswith(KAFKA_PREFIX):
            return "kafka", name.removeprefix(KAFKA_PREFIX)
        known = sorted({CONFIG, *self.own, *self.settings})
        raise ConfigurationError(
            f"The format {self.format!r} has no option {name!r}{nearest(name, known)}",
            hint=f"It has {', '.join(known)}{f' and {KAFKA_PREFIX}PROPERTY' if self.takes_kafka else ''}.",
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What was given to a format."""

    format: str
    own: Mapping[str, str]
    overrides: Overrides

    @property
    def config(self) -> str | None:
        """The settings file, on the driver's machine; without it, the file and variables that commands read."""
        return self.own.get(CONFIG)

    def get(self, name: str) -> str | None:
        """The value of an option of the format's own."""
        return self.own.get(name)

    def require(self, name: str, why: str) -> str:
        """The same for one that must be there."""
        if value := self.own.get(name):
            return value
        raise ConfigurationError(f"The format {self.format!r} needs the option {name!r}: {why}.")

    def says(self, name: str) -> bool:
        """Whether an option is true."""
        value = self.own.get(name, "false").lower()
        if value not in ("true", "false"):
            raise ConfigurationError(
                f"The option {name!r} of the format {self.format!r} is {value!r}.", hint="Say true or false."
            )
        return value == "true"


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about a name that is not known.

    >>> nearest("tabel", ["table", "config"]), nearest("x", ["table"])
    ("; did you mean 'table'?", '.')
    """
    found = get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else "."


# Whether a DataFrame has the columns that a sink needs, asked on the driver before a task starts.

BYTES: Final = ("binary", "string")
WHOLE_NUMBER: Final = ("bigint", "int", "smallint", "tinyint")
MOMENT: Final = ("timestamp", "timestamp_ntz")
HEADERS: Final = ("array<struct<key:string,value:binary>>",)
"""As Spark's own Kafka source and sink have them."""
ANYTHING: Final = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a format knows."""

    name: str
    types: tuple[str, ...]
    """Spark's names of the types it may have; none for any."""
    is_needed: bool = True


def check_columns(sink: str, found: Mapping[str, str], known: Sequence[Column]) -> None:
    """Raises `ConfigurationError` for a column that is missing, unknown or of another type; `found` are the types."""
    names = [column.name for column in known]
    for column in known:
        if column.is_needed and column.name not in found:
            meant = nearest(column.name, [name for name in found if name not in names])
            raise _refusal(sink, f"needs a column {column.name!r}, which the data lacks{meant}", names)
    for name in found:
        if name not in names:
            missing = [each for each in names if each not in found]
            raise _refusal(sink, f"knows no column {name!r}{nearest(name, missing)}", names)
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
    """A format that records can be written to."""

    known_options: ClassVar[KnownOptions]
    known_columns: ClassVar[Sequence[Column]]

    @classmethod
    def name(cls) -> str:
        """What users write into `.format(…)`."""
        return cls.known_options.format

    def checked(self, schema: StructType, overwrite: bool) -> Options:
        """The options, once they and the columns are found right."""
        options = self.known_options.read(self.options)
        if overwrite:
            raise ConfigurationError(
                f"The format {self.name()!r} adds and never overwrites.",
                hint='Write .mode("append"), or .outputMode("append") in a stream.',
            )
        check_columns(self.name(), types_of(schema), self.known_columns)
        return options

    def spread(self, schema: StructType, options: Options, grouping: Grouping) -> Spread:
        """How rows are spread over tasks, if somebody says so."""
        return spread_of(grouping, schema[grouping.rising].metadata or {}, options.says(grouping.promise))


def types_of(schema: StructType) -> Mapping[str, str]:
    """The names and types of columns."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


# Whether what belongs together is whole in one Spark partition, and in order there.
#
# The pointer of a Kafka partition drops what is below it, and a journal what is below its end. Were one of them spread
# over two tasks, the one with the higher numbers might come first, and the other's rows would be dropped as if they had
# been written: lost, without an error. No task can see what another one has, and Spark does not tell a Python sink how
# its input is spread. What is found out when all tasks are done comes too late. So these sinks want to be told
# beforehand, in one of two ways:
#
# - `in_order(df)` shuffles and sorts, and says so in the metadata of the column whose numbers rise. Spark hands
# metadata on through `select` and `filter`, up to the sink.
# - An option, `whole_partitions` or `whole_journals`, is your word for it. For records of Kafka it holds where nothing
#   between the source and the sink shuffles, and the source has neither `minPartitions` nor `maxRecordsPerPartition`.
#
# A stream cannot be sorted by Spark. There each task sorts its part of the batch itself, in memory, before it writes a
# row.
#
# A shuffle *behind* `in_order` spreads things again, and a word can be wrong. Both are found at the end of the batch,
# when two tasks tell of the same thing: then the write fails, each time that it is tried. It is late, but not silent.

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
