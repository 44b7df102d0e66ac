"""The `micro-batch` engine: Structured Streaming reads Kafka, one task per partition applies its slices.

Spark's part is to read, to spread and to retry. It decides nothing about progress: each start reads the
pointers from the target database, begins there with a fresh checkpoint folder, and throws the folder away at
the end. So a batch that Spark believes done but that we did not apply (a stop, a failure) costs nothing.

    start      pointers and extents of the topics -> startingOffsets; refuse a pointer that cannot be reached
    batch      tell the tasks which pointers to expect -> run the plan of the query, which is made once: Kafka ->
               mapInArrow (slice_task) -> a row per slice -> remember its pointer
    failure    of the environment: start again after a pause; any other: stop and raise it
    new topic  start again with it; new partitions of a topic are found by Spark itself
    stop       let the running batch end, within a budget; then stop the query
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from inorder.engines.progress import NOBODY, Listener, tell
from inorder.engines.session import STOP_BUDGET_SECONDS, Pauses, environment, raise_gravest, raise_if_over, spark_errors
from inorder.engines.slice_task import RECORD_COLUMNS, Task, slice_task, sorted_out
from inorder.engines.slice_work import SliceWork, TopicSource
from inorder.engines.survey import Survey, survey
from inorder.kafka.admin import Place
from inorder.model.errors import GuaranteeError, TransientError

logger = logging.getLogger("inorder.pipeline")

MAX_OFFSETS_PER_TRIGGER = 200_000
LOOK_SECONDS = 2.0
"""How often topics that do not exist yet are looked for."""
_WATCH_SECONDS = 0.1
_EARLIEST = -2  # Spark's word for it in `startingOffsets`

_READING: Final = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # Spark asks the broker for both ends of a partition after each poll, behind the fetch that is under way. A fetch
    # with nothing to bring would hold them up so long, and the usual 500 records a poll would make them the larger
    # part of reading a backlog. How much a poll may bring is bounded in bytes, too (max.partition.fetch.bytes).
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "10000",
}
_UNLOGGED: Final = {
    # Spark would write down what a batch will hold and that it is done, and wait for both: a third of a small batch, as
    # Hadoop starts a process or more for each file. We never read these logs, because pointers decide. So one batch an
    # hour is written, beside the work. Spark offers that for sinks that it knows, and for others to its own tests.
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(60 * 60 * 1000),
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Not for a run to the end of the topics, which Spark logs in any case."""


class MicroBatch:
    """Runs one pipeline on a Spark session until it is told to stop, or once to the end of its topics."""

    def __init__(
        self,
        spark: SparkSession,
        work: SliceWork,
        source: TopicSource,
        kafka: Mapping[str, str],
        *,
        max_offsets_per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
    ) -> None:
        """`kafka` are properties of the Java client, `bootstrap.servers` among them."""
        self._spark = spark
        self._work = work
        self._source = source
        self._kafka = dict(kafka)
        self._max_offsets = max_offsets_per_trigger

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NOBODY) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied.

        Failures of the environment are waited out. Raises `GuaranteeError`, `RejectedError` or
        `ConfigurationError` from wherever it happened. `listener` is called on threads of Spark's, for each slice in
        order per partition.
        """
        pauses, expected, goes_on = Pauses(), dict[Place, int](), True
        while goes_on and not stop.is_set():
            attempt = _Attempt(expected, listener)
            try:
                goes_on = self._run_query(attempt, stop, once)
            except TransientError as error:
                pause = pauses.after(progress=attempt.has_applied)
                logger.warning("pipeline.restart pipeline=%s pause=%.1fs reason=%s", self._work.name, pause, error)
                stop.wait(pause)

    def _run_query(self, attempt: _Attempt, stop: threading.Event, once: bool) -> bool:
        """One start of the query; whether another one should follow."""
        found = self._where_to_start(attempt)
        with checkpoint_folder() as folder, spark_errors():
            query = self._query(found, attempt, folder, once).start()
            try:
                has_grown = self._watch(query, found, attempt, stop, once)
            finally:
                attempt.finish()
                query.stop()
        if attempt.failure is not None:
            raise attempt.failure
        return has_grown

    def _query(self, found: Survey, attempt: _Attempt, folder: str, once: bool) -> DataStreamWriter:
        outcomes = self._records(found).mapInArrow(as_texts(slice_task(self._work, told_to_task)), TEXT_SCHEMA)
        writer = outcomes.writeStream.foreachBatch(attempt.on_batch).option("checkpointLocation", folder)
        if once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime="0 seconds").options(**_UNLOGGED)

    def _where_to_start(self, attempt: _Attempt) -> Survey:
        found = survey(self._work, self._source)
        attempt.expect(found.pointers)
        logger.info("pipeline.start pipeline=%s partitions=%s", self._work.name, dict(found.partitions))
        return found

    def _records(self, found: Survey) -> DataFrame:
        options = {f"kafka.{key}": value for key, value in self._kafka.items()} | {
            "subscribe": ",".join(found.partitions),
            "startingOffsets": json.dumps(starting_offsets(found)),
            "maxOffsetsPerTrigger": str(self._max_offsets),
            "includeHeaders": str(self._work.needs_headers).lower(),
        }
        columns = (*RECORD_COLUMNS, "headers") if self._work.needs_headers else RECORD_COLUMNS
        return self._spark.readStream.format("kafka").options(**options, **_READING).load().select(*columns)

    def _watch(
        self, query: StreamingQuery, found: Survey, attempt: _Attempt, stop: threading.Event, once: bool
    ) -> bool:
        """Waits for the end of the attempt; whether it ended because a topic has come into being."""
        look_at, progress = time.monotonic() + LOOK_SECONDS, QueryProgress(query, attempt.listener)
        while query.isActive and not stop.is_set():
            if attempt.wait(_WATCH_SECONDS):
                return False
            progress.look()
            if found.missing and not once and time.monotonic() > look_at:
                if found.has_grown(self._source):
                    return True
                look_at = time.monotonic() + LOOK_SECONDS
        if not stop.is_set() and attempt.failure is None:
            raise_if_over()
            progress.look()
            if (error := query.exception()) is not None:
                attempt.failure = environment(error)
        return False


def starting_offsets(found: Survey) -> dict[str, dict[str, int]]:
    """Where each partition goes on: at its pointer, or at the earliest record if it has none."""
    return {
        topic: {str(number): found.pointers.get((topic, number), _EARLIEST) for number in range(count)}
        for topic, count in found.partitions.items()
    }


class _Attempt:
    """One start of the query: what it applied, what it expects to find, and how it failed."""

    def __init__(self, expected: dict[Place, int], listener: Listener) -> None:
        """`expected` are the pointers seen committed in this run, by partition; attempts share them."""
        self.listener = listener
        self._expected = expected
        self._in_batch = threading.Lock()
        self._over = threading.Event()
        self.failure: Exception | None = None
        self.has_applied = False

    def expect(self, pointers: Mapping[Place, int]) -> None:
        """Adds what the database tells at a start; a pointer lower than one seen before stays a finding."""
        for place, pointer in pointers.items():
            self._expected[place] = max(pointer, self._expected.get(place, 0))

    def on_batch(self, batch: DataFrame, _batch_id: int) -> None:
        """Applies a micro-batch. It never raises: an error through Py4J would lose its type."""
        with self._in_batch:
            if self._over.is_set():
                return
            try:
                self._apply(batch)
            except (PySparkException, Py4JError) as error:
                self._fail(error if isinstance(error, PythonException) else environment(error))
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

    def _apply(self, batch: DataFrame) -> None:
        tell_tasks(batch, self._expected)
        outcomes, errors = sorted_out(collected(batch))
        for outcome in outcomes:
            self.has_applied = True
            self._expected[outcome.topic, outcome.partition] = outcome.next_offset
            tell(self.listener, outcome)
        raise_gravest(errors)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._over.set()


# What Spark tells of a running query, handed on to the listener of the run.
#
# We look. A listener of Spark's own would be called, but in Python it asks the JVM for a hundred fields one by one,
# after each batch, and took a twelfth of the processor that a stream of small batches needs.


_WHOLE = "triggerExecution"  # the sum of the other phases
_WORK = "addBatch"


class QueryProgress:
    """Turns the durations of each batch of a query into the phases of a run."""

    def __init__(self, query: StreamingQuery, listener: Listener) -> None:
        self._query = query
        self._listener = listener
        self._last = -1

    def look(self) -> None:
        """Tells the last batch, once."""
        progress = self._query.lastProgress
        if progress is not None and progress.batchId > self._last and _WORK in progress.durationMs:
            self._last = progress.batchId
            self._tell(progress)

    def _tell(self, progress: StreamingQueryProgress) -> None:
        phases = {name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items() if name != _WHOLE}
        logger.debug("pipeline.batch batch=%d rows=%d phases=%s", progress.batchId, progress.numInputRows, phases)
        self._listener.spent(phases)


# How the pointers that the driver saw committed get to the tasks of a batch: as a property of its job.
#
# The function that tasks run is made once, with the query. One for each batch, with the pointers inside it, took
# Spark a sixth of a small batch: it pickled it, planned it and looked up its columns anew.

PROPERTY: Final = "inorder.expected"


def tell_tasks(batch: DataFrame, pointers: Mapping[Place, int]) -> None:
    """Hands pointers to the tasks of whatever this thread runs next."""
    text = orjson.dumps([(topic, partition, pointer) for (topic, partition), pointer in pointers.items()])
    batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, text.decode())


def told_to_task() -> dict[Place, int]:
    """The pointers, in a task; without them nothing may be applied, as nobody would notice one that moved back."""
    task = TaskContext.get()
    text = None if task is None else task.getLocalProperty(PROPERTY)
    if text is None:
        raise GuaranteeError("A task was not told which pointers to expect.", hint="Leave PYSPARK_PIN_THREAD as it is.")
    return {(topic, partition): pointer for topic, partition, pointer in orjson.loads(text)}


# The outcome rows of a micro-batch as text, and how the driver gets them: over the connection that it has already.
#
# `DataFrame.collect` opens a server, a thread and a connection for each call. Where Python and Spark talk over Unix
# domain sockets, as in our session, Spark 4.2 also keeps the path of each such server until the process ends
# (`File.deleteOnExit`): by estimate 100 MB a day at the pace of our batches. A few short texts need none of that.

TEXT_SCHEMA: Final = "outcome string"


def as_texts(task: Task) -> Task:
    """A task that tells each of its rows as text."""

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in task(batches):
            yield pa.RecordBatch.from_pydict({"outcome": [orjson.dumps(row).decode() for row in rows.to_pylist()]})

    return tell


def collected(batch: DataFrame) -> list[Row]:
    """Runs a batch of such tasks, and returns their rows in the order of partitions and of slices in each."""
    return [Row(**orjson.loads(row.getString(0))) for row in batch._jdf.collectAsList()]


# A checkpoint folder for one start of a query: fresh, and gone afterwards, also after a crash.
#
# Spark insists on one; we never read it, as the pointers tell where to begin. A driver that is killed cannot remove its
# own, so each holds a lock that the system frees when the process ends, and every start removes folders whose lock is
# free.

_PREFIX = "inorder-checkpoint-"
_MAKING = "inorder-making-checkpoint-"
_LOCK = "lock"


@contextmanager
def checkpoint_folder() -> Iterator[str]:
    """The folder for `checkpointLocation`, for as long as the block lasts."""
    remove_left_behind(Path(tempfile.gettempdir()))
    making = Path(tempfile.mkdtemp(prefix=_MAKING))
    lock = os.open(making / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Locked before it has the name that others look for: one that is not locked yet would be taken for left behind.
    folder = making.rename(making.with_name(making.name.replace(_MAKING, _PREFIX, 1)))
    try:
        yield str(folder / "checkpoint")
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(parent: Path) -> list[Path]:
    """Removes the folders of processes that are gone, as far as we may, and returns them."""
    found = [folder for folder in parent.glob(f"{_PREFIX}*") if _is_left_behind(folder)]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_left_behind(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False  # being made or removed at this moment, or another user's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
