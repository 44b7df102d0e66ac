"""A Delta table through Spark: its history, its MERGE, its maintenance. `pipeline/delta.py` says what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from inorder.engines.session import classify_spark_error
from inorder.model import errors
from inorder.model.errors import ConfigurationError, FencedError, GuaranteeError, PermanentError, TransientError
from inorder.model.names import DELETED_COLUMN
from inorder.pipeline.delta import DeltaCommit, DeltaSql, Found, find_pointers, missing_columns, path_of
from inorder.pipeline.mapping import TableMapping

VACUUM_HOURS: Final = 168
"""A week, the least that Delta allows without further ado: who reads an older version may miss files."""

_FEW_COMMITS = 20
_VIEW = "inorder_batch"
_FAMILIES = (GuaranteeError, TransientError, ConfigurationError, PermanentError)
_RAISED = re.compile(r"inorder\.model\.errors\.(?P<kind>\w+): (?P<message>.*)")


class DeltaTableStore:
    """One Delta table. Used by the driver, by one thread at a time."""

    def __init__(self, spark: SparkSession, mapping: TableMapping) -> None:
        self._spark = _tuned(spark.newSession())
        self._mapping = mapping
        self._sql = DeltaSql(mapping)
        self._app = f"inorder:{mapping.pipeline}"

    def install(self) -> None:
        """Creates the table if it does not exist; refuses one that lacks a column."""
        with _delta_errors(self._mapping):
            self._spark.sql(self._sql.create())
            present = self._spark.table(self._sql.table).columns
        if missing := missing_columns(self._mapping, present):
            kinds = dict(self._mapping.fields)
            added = [self._sql.add_column(name, kinds[name]) for name in missing if name in kinds]
            hint = f"Run in Spark: {'; '.join(added)}" if len(added) == len(missing) else "Name another path."
            raise ConfigurationError(
                f"The Delta table {path_of(self._mapping)} lacks: {', '.join(missing)}.", hint=hint
            )

    def version(self) -> int:
        """Of the newest commit."""
        with _delta_errors(self._mapping):
            return int(self._snapshot().version())

    def number(self) -> int | None:
        """The number of the pipeline's last commit, which Delta calls a transaction version."""
        with _delta_errors(self._mapping):
            found = self._snapshot().transactions().get(self._app)
            return int(found.get()) if found.isDefined() else None

    def find_pointers(self, number: int | None) -> Found:
        """The pointers that belong to the rows."""
        return find_pointers(self._commits(), self._mapping.pipeline, number)

    def commits_between(self, version: int, newest: int) -> list[DeltaCommit]:
        """The commits above a version, newest first, as far as the log has them."""
        return [each for each in self._read_history(self._sql.history(newest - version)) if each.version > version]

    def newest_generation(self) -> int:
        with _delta_errors(self._mapping):
            [row] = self._spark.sql(self._sql["newest_generation"]).collect()
            return int(row[0])

    def merge(self, rows: DataFrame, number: int, metadata: str, *, unique: bool) -> None:
        """Merges rows in one commit; with `unique` no key is in them twice.

        Raises `FencedError` where a commit with this number exists. `rows` must be of the session of a batch, which is
        another one than that of the query: only there do these properties count.
        """
        session, properties = _tuned(rows.sparkSession), self._properties(number, metadata)
        for name, value in properties.items():
            session.conf.set(name, value)
        with _delta_errors(self._mapping), ExitStack() as after:
            for name in properties:
                after.callback(session.conf.unset, name)
            rows.createOrReplaceTempView(_VIEW)
            if not unique:
                session.sql(self._sql.newest_of_batch(_VIEW)).createOrReplaceTempView(f"{_VIEW}_newest")
            done = session.sql(self._sql.merge(_VIEW if unique else f"{_VIEW}_newest")).collect()
        if not done:
            raise FencedError(
                f"Commit {number} of {self._mapping.pipeline!r} is in the Delta table already, and not of this driver.",
                hint="Another driver writes the table; it continues from its pointers.",
            )

    def optimize(self, hours: int = VACUUM_HOURS) -> dict[str, Any]:
        """Joins small files, and removes those that no version of the last `hours` needs; returns what it did."""
        with _delta_errors(self._mapping):
            [done] = self._spark.sql(self._sql["optimize"]).select("metrics").collect()
            metrics = done[0].asDict()
            self._spark.sql(self._sql.vacuum(hours))
        return {
            "table": self._mapping.table,
            "files_added": metrics["numFilesAdded"],
            "files_removed": metrics["numFilesRemoved"],
        }

    def _properties(self, number: int, metadata: str) -> Mapping[str, str]:
        return {
            "spark.databricks.delta.write.txnAppId": self._app,
            "spark.databricks.delta.write.txnVersion": str(number),
            "spark.databricks.delta.commitInfo.userMetadata": metadata,
            # The rows are kept already (`kept_rows`).
            "spark.databricks.delta.merge.materializeSource": "none",
        }

    def _snapshot(self) -> Any:
        jvm: Any = self._spark._jvm
        # Delta takes its own properties from the session that is active, whichever it is given.
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(self._spark._jsparkSession)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, path_of(self._mapping))
        nothing = jvm.scala.Option.empty()
        return log.update(False, nothing, nothing)

    def _commits(self) -> Iterator[DeltaCommit]:
        """All commits, newest first; the last ones are nearly always enough."""
        some = self._read_history(self._sql.history(_FEW_COMMITS))
        yield from some
        if len(some) == _FEW_COMMITS:
            older = self._read_history(self._sql["whole_history"])
            yield from (commit for commit in older if commit.version < some[-1].version)

    def _read_history(self, statement: str) -> list[DeltaCommit]:
        with _delta_errors(self._mapping):
            rows = self._spark.sql(statement).select("version", "operation", "operationParameters", "userMetadata")
            return [DeltaCommit(version, name, dict(some or {}), text) for version, name, some, text in rows.collect()]


def _tuned(session: SparkSession) -> SparkSession:
    """A session of the job; Spark and Delta would cut each small step into 200 and 50 tasks."""
    context = session.sparkContext
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        session.conf.set("spark.sql.shuffle.partitions", str(max(2, context.defaultParallelism)))
    session.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    return session


def kept_rows(batch: DataFrame) -> DataFrame:
    """Runs the tasks of a batch and keeps their rows on the executors, without a way to compute them again.

    A MERGE reads its source twice, and must find the same. It refuses a source in Spark's cache, which may be evicted.
    If an executor is lost the batch fails, and is read again.
    """
    return batch.localCheckpoint(eager=True)


def forget_rows(rows: DataFrame) -> None:
    """Frees what `kept_rows` keeps; else it stays until Java collects its garbage."""
    with suppress(Py4JError):
        rows._jdf.queryExecution().logical().rdd().unpersist(False)


def delta_rows(spark: SparkSession, path: str) -> DataFrame:
    """The rows of a Delta table that the job `upsert` writes, without those that were deleted."""
    table = spark.read.format("delta").load(path)
    return table.where(f"NOT {DELETED_COLUMN}").drop(DELETED_COLUMN)


@contextmanager
def _delta_errors(mapping: TableMapping) -> Iterator[None]:
    """What Spark refuses is a fault of the settings; everything else is tried again."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark refused a statement on the Delta table {path_of(mapping)}: {str(error).splitlines()[0]}",
            hint="Compare its columns with the mapping, and name another path if it is a different table.",
        ) from error
    except Py4JError as error:
        raise classify_spark_error(error) from error


@contextmanager
def task_errors() -> Iterator[None]:
    """An error of inorder in a task, as itself again."""
    try:
        yield
    except PythonException as error:
        found = _RAISED.search(str(error))
        kind = getattr(errors, found["kind"], None) if found else None
        if found is None or not (isinstance(kind, type) and issubclass(kind, _FAMILIES)):
            raise
        family = next(each for each in _FAMILIES if issubclass(kind, each))
        raise family(found["message"], hint="It was raised in a task of Spark.") from error
