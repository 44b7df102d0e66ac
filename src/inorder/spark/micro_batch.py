"""The `micro-batch` engine: Structured Streaming reads Kafka, one task per partition applies its slices.

Spark's part is to read, to spread and to retry. It decides nothing about progress: each start reads the
pointers from the target database, begins there with a fresh checkpoint folder, and throws the folder away at
the end. So a batch that Spark believes done but that we did not apply (a stop, a failure) costs nothing.

    start      pointers and extents of the topic -> startingOffsets; refuse a pointer that cannot be reached
    batch      foreachBatch -> mapInArrow (slice_task) -> collect a row per slice -> remember its pointer
    failure    of the environment: start again after a pause; any other: stop and raise it
    stop       let the running batch end, within a budget; then stop the query
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from inorder.model.errors import (
    ConfigurationError,
    GuaranteeError,
    InorderError,
    PermanentError,
    TransientError,
)
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import SliceOutcome
from inorder.ports.table_store import Pointer, TableStores
from inorder.spark.checkpoint import checkpoint_folder
from inorder.spark.slice_task import OUTCOME_SCHEMA, RECORD_COLUMNS, outcome_of, slice_task
from inorder.spark.topic import check_reachable, starting_offsets, topic_extents

logger = logging.getLogger("inorder.pipeline")

MAX_OFFSETS_PER_TRIGGER = 200_000
STOP_BUDGET_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
_WATCH_SECONDS = 0.1

OnOutcome = Callable[[SliceOutcome], None]


class MicroBatch:
    """Runs one pipeline on a Spark session until it is told to stop, or once to the end of the topic."""

    def __init__(
        self,
        spark: SparkSession,
        stores: TableStores,
        mapping: TableMapping,
        kafka: Mapping[str, str],
        *,
        max_offsets_per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
    ) -> None:
        """`kafka` are properties of the Java client, `bootstrap.servers` among them."""
        self._spark = spark
        self._stores = stores
        self._mapping = mapping
        self._kafka = dict(kafka)
        self._max_offsets = max_offsets_per_trigger

    def run(self, stop: threading.Event, once: bool = False, on_outcome: OnOutcome | None = None) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topic holds at the start is applied.

        Failures of the environment are waited out. Raises `GuaranteeError`, `RejectedError` or
        `ConfigurationError` from wherever it happened. `on_outcome` is called for each slice, in order per
        partition, on a thread of Spark's.
        """
        pause = _FIRST_PAUSE_SECONDS
        expected: dict[int, int] = {}
        while not stop.is_set():
            attempt = _Attempt(self._stores, self._mapping, expected, on_outcome)
            try:
                self._run_query(attempt, stop, once)
            except TransientError as error:
                pause = _FIRST_PAUSE_SECONDS if attempt.has_applied else min(2 * pause, _LONGEST_PAUSE_SECONDS)
                logger.warning(
                    "pipeline.restart pipeline=%s pause=%.1fs reason=%s", self._mapping.pipeline, pause, error
                )
                stop.wait(pause)
            else:
                return

    def _run_query(self, attempt: _Attempt, stop: threading.Event, once: bool) -> None:
        offsets = self._where_to_start(attempt)
        with checkpoint_folder() as folder, _spark_errors():
            trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
            query = (
                self._records(offsets)
                .writeStream.foreachBatch(attempt.on_batch)
                .option("checkpointLocation", folder)
                .trigger(**trigger)
                .start()
            )
            try:
                _watch(query, attempt, stop)
            finally:
                attempt.finish()
                query.stop()
        if attempt.failure is not None:
            raise attempt.failure

    def _where_to_start(self, attempt: _Attempt) -> dict[str, int]:
        topic = self._mapping.topic
        pointers = self._pointers()
        extents = topic_extents(self._spark, self._kafka, topic)
        if extents is None:
            raise TransientError(f"Topic {topic!r} does not exist yet.", hint="It is waited for.")
        check_reachable(topic, pointers, extents)
        attempt.expect({number: pointer.next_offset for number, pointer in pointers.items()})
        logger.info("pipeline.start pipeline=%s topic=%s partitions=%d", self._mapping.pipeline, topic, len(extents))
        return starting_offsets(pointers, extents)

    def _pointers(self) -> Mapping[int, Pointer]:
        store = self._stores()
        try:
            return store.pointers(self._mapping.topic)
        finally:
            store.close()

    def _records(self, offsets: Mapping[str, int]) -> DataFrame:
        options = {f"kafka.{key}": value for key, value in self._kafka.items()} | {
            "subscribe": self._mapping.topic,
            "startingOffsets": json.dumps({self._mapping.topic: offsets}),
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(self._max_offsets),
            "kafka.isolation.level": "read_committed",
            # Spark's reader waits this long whenever a partition has nothing more to give.
            "kafka.fetch.max.wait.ms": "10",
        }
        return self._spark.readStream.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


class _Attempt:
    """One start of the query: what it applied, what it expects to find, and how it failed."""

    def __init__(
        self,
        stores: TableStores,
        mapping: TableMapping,
        expected: dict[int, int],
        on_outcome: OnOutcome | None,
    ) -> None:
        """`expected` are the pointers seen committed in this run, by partition; attempts share them."""
        self._stores = stores
        self._mapping = mapping
        self._on_outcome = on_outcome
        self._expected = expected
        self._in_batch = threading.Lock()
        self._over = threading.Event()
        self.failure: Exception | None = None
        self.has_applied = False

    def expect(self, pointers: Mapping[int, int]) -> None:
        """Adds what the database tells at a start; a pointer lower than one seen before stays a finding."""
        for number, pointer in pointers.items():
            self._expected[number] = max(pointer, self._expected.get(number, 0))

    def on_batch(self, records: DataFrame, _batch_id: int) -> None:
        """Applies a micro-batch. It never raises: an error through Py4J would lose its type."""
        with self._in_batch:
            if self._over.is_set():
                return
            try:
                self._apply(records)
            except (PySparkException, Py4JError) as error:
                self._fail(error if isinstance(error, PythonException) else _environment(error))
            except Exception as error:  # noqa: BLE001 whatever it is, `run` raises it on the caller's thread
                self._fail(error)

    def wait(self, seconds: float) -> bool:
        """Waits a moment; whether the attempt is over."""
        return self._over.wait(seconds)

    def finish(self) -> None:
        """Lets a running batch end within the budget; later ones apply nothing."""
        in_time = self._in_batch.acquire(timeout=STOP_BUDGET_SECONDS)
        self._over.set()
        if in_time:
            self._in_batch.release()

    def _apply(self, records: DataFrame) -> None:
        task = slice_task(self._stores, self._mapping, self._expected)
        results = [outcome_of(row) for row in records.mapInArrow(task, OUTCOME_SCHEMA).collect()]
        for outcome in (result for result in results if isinstance(result, SliceOutcome)):
            self._expected[outcome.partition] = outcome.next_offset
            self._tell(outcome)
        if errors := [result for result in results if isinstance(result, InorderError)]:
            raise min(errors, key=_gravity)

    def _tell(self, outcome: SliceOutcome) -> None:
        self.has_applied = True
        logger.debug("pipeline.slice_applied %s", outcome)
        if outcome.rejected or outcome.stale:
            logger.warning(
                "pipeline.records_not_applied topic=%s partition=%d below=%d rejected=%d stale=%d",
                outcome.topic, outcome.partition, outcome.next_offset, outcome.rejected, outcome.stale,
            )  # fmt: skip
        if self._on_outcome is not None:
            self._on_outcome(outcome)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._over.set()


def _watch(query: StreamingQuery, attempt: _Attempt, stop: threading.Event) -> None:
    while query.isActive and not stop.is_set():
        if attempt.wait(_WATCH_SECONDS):
            return
    if not stop.is_set() and attempt.failure is None and (error := query.exception()) is not None:
        attempt.failure = _environment(error)


def _gravity(error: InorderError) -> int:
    """The error to raise when tasks fail in different ways: one that must not be retried goes first."""
    return 0 if isinstance(error, GuaranteeError) else 2 if isinstance(error, TransientError) else 1


def _environment(error: Exception) -> TransientError:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return TransientError(f"Spark: {text[0][:300]}", hint="The query starts again from the pointers.")


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Errors of starting and stopping a query, in our families."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigurationError(
            f"Spark refused the query: {str(error).splitlines()[0]}",
            hint="Make the session with the jars of its Kafka connector (inorder.embedded.spark_jars).",
        ) from error
    except Py4JNetworkError as error:
        raise PermanentError("Spark's JVM went away.", hint="Start the pipeline again.") from error
    except (PySparkException, Py4JError) as error:
        raise _environment(error) from error
