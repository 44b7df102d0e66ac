"""The Spark source `inorder.outbox`: the rows that wait in an outbox, for inspection, audits and migrations.

Rows of a table are split by ranges of ids, each read by one task with one statement and so in one snapshot. Ranges are
read at different moments: a row that is written or purged meanwhile may be included or not. Rows above the highest id
at the time of planning are left out. For one consistent snapshot, let one range hold all (`ids_per_partition`).

There is no stream. A process that follows an outbox and publishes is a relay: it must be fenced against others, know
what it has published, and delete that (`inorder/relay/drain.py`). A Spark stream can do none of it, and would also miss
rows, since ids become visible in another order than they are assigned.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from inorder.engines.formats import FormatOptions, KnownOptions
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.outbox.stores.table import IdRange, WaitingRows

SCHEMA: Final = (
    "id bigint, topic string, key binary, value binary, headers array<struct<key: string, value: binary>>,"
    " partition int, timestamp timestamp, flaw string"
)
_NAMES: Final = ("id", "topic", "key", "value", "headers", "partition", "timestamp", "flaw")
IDS_PER_PARTITION: Final = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN: Final = KnownOptions(
    "inorder.outbox",
    frozenset({"ids_per_partition"}),
    {"url": ("database", "url"), "table": ("relay", "table"), "layout": ("relay", "layout")},
)


class OutboxFormat(DataSource):
    """Spark's side of the format; `rows` finds the table from the settings."""

    @classmethod
    def name(cls) -> str:
        """The name for `.format(…)`."""
        return _KNOWN.format

    def schema(self) -> str:
        """The same for every layout; columns that a layout lacks are null."""
        return SCHEMA

    @abstractmethod
    def rows(self, options: FormatOptions) -> WaitingRows:
        """The rows of the outbox; the composition root implements it."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called on the driver, once per query."""
        options = _KNOWN.read(self.options)
        if len(schema.names) != len(_NAMES) or set(schema.names) != set(_NAMES):
            raise ConfigurationError(
                f"The format {_KNOWN.format!r} has a fixed schema: {SCHEMA}.", hint="Leave .schema(…) out."
            )
        return OutboxReader(self.rows(options), _whole_number(options.get("ids_per_partition")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's
        """Called when a query starts: `load()` does not yet say whether it is for a stream."""
        return RefusedStream()


class RefusedStream(DataSourceStreamReader):
    """Refuses with its first call. An error in `streamReader` itself would be followed by one of Spark's own code."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        raise ConfigurationError(
            "An outbox is not a stream: a process that follows it and publishes is a relay, which must be fenced"
            " against others and delete what it has published.",
            hint="Run `inorder relay run`, or `inorder pipeline run relay` on Spark, and read the topic.",
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Never called."""
        raise NotImplementedError


class OutboxReader(DataSourceReader):
    def __init__(self, rows: WaitingRows, ids_per_partition: int = IDS_PER_PARTITION) -> None:
        self._rows = rows
        self._ids = ids_per_partition

    def partitions(self) -> Sequence[InputPartition]:
        """One per range; a single empty one where no row waits."""
        extent = self._rows.extent()
        ranges = [] if extent is None else list(cut(extent, self._ids))
        return [InputPartition(ids) for ids in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter([]) if partition.value is None else map(columns, self._rows.rows(partition.value))


def cut(extent: IdRange, ids: int) -> Iterator[IdRange]:
    """Splits an extent into ranges of `ids` ids.

    >>> list(cut(IdRange(5, 9), 3))
    [IdRange(first=5, last=7), IdRange(first=8, last=9)]
    """
    for first in range(extent.first, extent.last + 1, ids):
        yield IdRange(first, min(first + ids - 1, extent.last))


def columns(row: OutboxRow) -> tuple[Any, ...]:
    at = None if row.timestamp_ms is None else _EPOCH + timedelta(milliseconds=row.timestamp_ms)
    return row.id, row.topic, row.key, row.value, list(row.headers), row.partition, at, row.flaw or None


def _whole_number(text: str | None) -> int:
    if text is None:
        return IDS_PER_PARTITION
    if not text.isdigit() or int(text) < 1:
        raise ConfigurationError(
            f"The option 'ids_per_partition' is {text!r}.",
            hint=f"Give a whole number; the default is {IDS_PER_PARTITION}.",
        )
    return int(text)
