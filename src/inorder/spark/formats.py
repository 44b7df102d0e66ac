"""The Spark formats of the settings: what `inorder.spark.register(spark)` registers; and `upsert_batch`.

Settings are loaded on the driver, by a process that Spark starts there, whenever a query is planned. Tasks receive what
they need of them, so nodes have no settings file, but they must be able to import inorder.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from inorder.engines.formats import FormatOptions
from inorder.engines.progress import FIGURES
from inorder.engines.slice_work import SliceWork
from inorder.journal.formats import JournalFormat, OpenJournals
from inorder.journal.service import Journals
from inorder.model.errors import ConfigurationError
from inorder.model.names import suggest
from inorder.outbox.formats import OutboxFormat
from inorder.outbox.stores.table import SqlWaitingRows, WaitingRows
from inorder.pipeline.formats import KafkaFormat, TableFormat, apply_frame
from inorder.pipeline.job import UpsertWork, upsert_work
from inorder.pipeline.stores.batch_log import BatchLog, KafkaBatchLog
from inorder.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("inorder.pipeline")


class TableSink(TableFormat):
    """`inorder.table`."""

    def work(self, options: FormatOptions) -> SliceWork:
        """The tables of the settings, or the one that is named."""
        return work_of(upsert_work(_settings(options)), options.get("table"))


class KafkaSink(KafkaFormat):
    """`inorder.kafka`."""

    def log(self, options: FormatOptions, name: str) -> BatchLog:
        """The cluster of the settings."""
        settings = _settings(options)
        properties = tuple(sorted(settings.kafka.properties.items()))
        return KafkaBatchLog(properties, name, tuple(sorted(settings.partitioners().items())))


class JournalSink(JournalFormat):
    """`inorder.journal`."""

    def journals(self, options: FormatOptions) -> OpenJournals:
        """The journals of the settings."""
        return partial(Journals, _settings(options))


class OutboxSource(OutboxFormat):
    """`inorder.outbox`."""

    def rows(self, options: FormatOptions) -> WaitingRows:
        """The outbox of the settings."""
        settings = _settings(options)
        return SqlWaitingRows(settings.database.require_url(), settings.relay.table, settings.relay.layout)


FORMATS = (TableSink, KafkaSink, JournalSink, OutboxSource)


def register(spark: SparkSession) -> None:
    """Registers the formats `inorder.table`, `inorder.kafka`, `inorder.journal` and `inorder.outbox` with a session."""
    for each in FORMATS:
        spark.dataSource.register(each)


def upsert_batch(
    df: DataFrame,
    batch_id: int,
    *,
    settings: Settings | None = None,
    table: str | None = None,
    tasks: int = 8,
    whole_partitions: bool = False,
) -> dict[str, int]:
    """Applies a batch of Kafka records to the tables of the settings, from your own `foreachBatch`; returns totals.

    Each slice of a Kafka partition is one transaction that also moves the partition's pointer. So a batch that Spark
    runs again, as a whole or in part and under whatever number, changes nothing: its records are `replayed`. The number
    is only logged. `df` has the columns of Spark's Kafka source, at least `topic`, `partition`, `offset` and `value`;
    rows may be filtered out and values changed. It is shuffled by Kafka partition into so many `tasks` and sorted
    there, unless you promise by `whole_partitions` that nothing since the source has shuffled (docs/pipeline.md).

    Raises what went wrong, after all tasks have ended; what was applied stays. The query then fails, and continues
    where it was when it is started again.
    """
    work = work_of(upsert_work(settings or Settings.load()), table)
    totals: Counter[str] = Counter(dict.fromkeys(FIGURES, 0))
    for outcome in apply_frame(df, work, None if whole_partitions else tasks):
        totals.update({name: getattr(outcome, name) for name in FIGURES})
    log.info("pipeline.batch_applied", extra={"pipeline": work.name, "batch": batch_id, **totals})
    return dict(totals)


def work_of(work: UpsertWork, table: str | None) -> UpsertWork:
    """The part of a work that fills a table; all of it where none is named."""
    if table is None:
        return work
    known = [target.mapping.table for target in work.targets]
    if table not in known:
        raise ConfigurationError(
            f"The settings have no table {table!r}{suggest(table, known)}",
            hint=f"They have {', '.join(known)}; [pipeline.upsert] or [[pipeline.tables]] adds one.",
        )
    return replace(work, targets=tuple(target for target in work.targets if target.mapping.table == table))


def _settings(options: FormatOptions) -> Settings:
    return Settings.load(options.config, **options.overrides)
