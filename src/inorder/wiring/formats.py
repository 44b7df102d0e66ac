"""The formats of Spark, put together from the settings: what `inorder.spark.register(spark)` makes known.

Settings are loaded on the driver, by a process that Spark starts there, whenever a query is planned. Tasks get what
they need of them, so nodes have no settings file, but they must be able to import inorder.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from inorder.kafka.batch_log import KafkaBatchLog
from inorder.model.errors import ConfigurationError
from inorder.pipeline.upsert_work import UpsertWork
from inorder.ports.batch_log import BatchLog
from inorder.ports.slice_work import SliceWork
from inorder.ports.waiting_rows import WaitingRows
from inorder.settings import Settings
from inorder.spark.formats.journal import JournalFormat, OpenJournals
from inorder.spark.formats.kafka import KafkaFormat
from inorder.spark.formats.options import Options, nearest
from inorder.spark.formats.outbox import OutboxFormat
from inorder.spark.formats.table import TableFormat
from inorder.stores.waiting_rows import SqlWaitingRows
from inorder.wiring.journal import Journals
from inorder.wiring.logs import partitioners_of
from inorder.wiring.upsert import upsert_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableSink(TableFormat):
    """`inorder.table`."""

    def work(self, options: Options) -> SliceWork:
        """The tables of the settings, or the one that is named."""
        return work_of(upsert_work(_settings(options)), options.get("table"))


class KafkaSink(KafkaFormat):
    """`inorder.kafka`."""

    def log(self, options: Options, name: str) -> BatchLog:
        """The cluster of the settings."""
        settings = _settings(options)
        properties = tuple(sorted(settings.kafka.properties.items()))
        return KafkaBatchLog(properties, name, tuple(sorted(partitioners_of(settings).items())))


class JournalSink(JournalFormat):
    """`inorder.journal`."""

    def journals(self, options: Options) -> OpenJournals:
        """The journals of the settings."""
        return partial(Journals, _settings(options))


class OutboxSource(OutboxFormat):
    """`inorder.outbox`."""

    def rows(self, options: Options) -> WaitingRows:
        """The outbox of the settings."""
        settings = _settings(options)
        return SqlWaitingRows(settings.database.require_url(), settings.relay.table, settings.relay.layout)


FORMATS = (TableSink, KafkaSink, JournalSink, OutboxSource)


def register(spark: SparkSession) -> None:
    """Makes the formats `inorder.table`, `inorder.kafka`, `inorder.journal` and `inorder.outbox` known to a session."""
    for each in FORMATS:
        spark.dataSource.register(each)


def work_of(work: UpsertWork, table: str | None) -> UpsertWork:
    """The part of a work that fills a table; all of it where none is named."""
    if table is None:
        return work
    known = [target.mapping.table for target in work.targets]
    if table not in known:
        raise ConfigurationError(
            f"The settings have no table {table!r}{nearest(table, known)}",
            hint=f"They have {', '.join(known)}; [pipeline.upsert] or [[pipeline.tables]] adds one.",
        )
    return UpsertWork(tuple(target for target in work.targets if target.mapping.table == table))


def _settings(options: Options) -> Settings:
    return Settings.load(options.config, **options.overrides)
