"""The `micro-batch` engine: Structured Streaming reads Kafka, one task per partition applies its slices.

Spark reads, distributes and retries. It decides nothing about progress: each start reads the pointers from the target
database, begins there with a fresh checkpoint folder, and removes the folder at the end. So a batch that Spark believes
done but that was not applied (a stop, a failure) costs nothing.

    start      pointers and extents of the topics -> startingOffsets; refuse a pointer whose record is gone
    batch      pass the expected pointers to the tasks -> run the plan of the query, which is built once: Kafka ->
               mapInArrow (slice_task) -> a row per slice -> remember its pointer
    failure    of the environment: start again after a pause; a violated guarantee: start again without the partition
               (`faults.py`); any other: stop and raise it
    wait       a table refuses most records of a partition: its tasks drop its records, the driver tries the next ones
               after pauses (`holds.py`), and once they are accepted the query starts again
    sink       a work whose batches the driver commits (`BatchSink`): its tasks return rows, and the driver writes them
    change     new topics, new partitions, or another topic of the same name: start again
    stop       let the running batch end, within a budget; then stop the query

**Expected pointers.** The pointers that the driver saw committed reach the tasks of a batch as a local property of its
job. The function that tasks run is built once, with the query. One for each batch, with the pointers inside it, took
Spark a sixth of a small batch: it pickled it, planned it and resolved its columns again.

**Outcomes.** Tasks return a row per slice as JSON text, and the driver collects it over the Py4J connection that it has
already. `DataFrame.collect` opens a server, a thread and a connection for each call. Where Python and Spark talk over
Unix domain sockets, as in our session, Spark 4.2 also keeps the path of each such server until the process ends
(`File.deleteOnExit`): by estimate 100 MB a day at the pace of our batches. A few short texts need none of that.

**Phases.** The driver polls `lastProgress`. A `StreamingQueryListener` in Python would ask the JVM for a hundred fields
one by one after each batch, and took a twelfth of the processor that a stream of small batches needs.

**Leader epochs** are not known here: Spark shows none of a record and seeks by offset alone. So a log that an unclean
election truncated below the pointer, and that was filled again past it before the next look, is not noticed. The
`resident` engine notices it. The pointer row then has no valid epoch (`leader_epoch_at`), so no later start is misled.

**Checkpoint folders.** Spark requires one; it is never read, because the pointers say where to begin. A driver that is
killed cannot remove its own. So each folder holds a lock that the system frees when the process ends, and every start
removes folders whose lock is free.
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
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from inorder.engines.faults import OnMovedBack, PartitionFaults
from inorder.engines.holds import HEAD_RECORDS, Holds
from inorder.engines.in_process import begin_at
from inorder.engines.progress import NULL_LISTENER, Listener, LoggingListener
from inorder.engines.session import (
    SPARK_FAILURES,
    STOP_BUDGET_SECONDS,
    Backoff,
    classify_spark_error,
    raise_gravest,
    raise_if_stopped,
    spark_errors,
)
from inorder.engines.slice_task import RECORD_COLUMNS, Task, slice_task, split_results
from inorder.engines.slice_work import (
    BatchSink,
    DriverCommitted,
    SliceOutcome,
    SliceWork,
    SliceWorker,
    TopicSource,
    apply_at,
)
from inorder.engines.survey import Survey, survey
from inorder.model.errors import GuaranteeError, MassRefusalError, TransientError
from inorder.model.partitioning import Place

logger = logging.getLogger("inorder.pipeline")

_STARTS = count(1)
"""Queries of one session need different names."""

MAX_OFFSETS_PER_TRIGGER = 200_000
CHECK_SECONDS = 2.0
"""How often the driver checks whether missing topics exist."""
HEAD_SECONDS = 5.0
"""How long the driver waits for the next record of a partition that waits; it is known to exist."""
PROPERTY: Final = "inorder.expected"
TEXT_SCHEMA: Final = "outcome string"

_WATCH_SECONDS = 0.1
_EARLIEST = -2  # as `startingOffsets` spells it
_WHOLE = "triggerExecution"  # the sum of the other phases
_WORK = "addBatch"
_PREFIX = "inorder-checkpoint-"
_MAKING = "inorder-making-checkpoint-"
_LOCK = "lock"

_READING: Final = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # Spark asks the broker for both ends of a partition after each poll, behind the fetch that is under way. An empty
    # fetch would delay these requests for its whole wait, and with the default of 500 records per poll they would take
    # longer than reading a backlog. The size of a poll is limited in bytes as well (max.partition.fetch.bytes).
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "10000",
}
_UNLOGGED: Final = {
    # Spark would log what a batch will hold and that it is done, and wait for both: a third of a small batch, as Hadoop
    # starts at least one process for each file. These logs are never read, because pointers decide. So one batch per
    # hour is logged, asynchronously. Spark offers that for sinks that it knows, and for others only to its own tests.
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(60 * 60 * 1000),
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Not for a run with `once`, which Spark logs in any case."""


class MicroBatch:
    """Runs one pipeline on a Spark session until it is stopped, or once to the end of its topics."""

    def __init__(
        self,
        spark: SparkSession,
        work: SliceWork,
        source: TopicSource,
        kafka: Mapping[str, str],
        *,
        max_offsets_per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
        on_moved_back: OnMovedBack = "stop",
    ) -> None:
        """`kafka` are properties of the Java client, `bootstrap.servers` among them."""
        self._spark = spark
        self._work = work
        self._source = source
        self._kafka = dict(kafka)
        self._max_offsets = max_offsets_per_trigger
        self._on_moved_back = on_moved_back
        self._sink = work.on(spark) if isinstance(work, DriverCommitted) else None
        self._worker: SliceWorker | None = None
        """Of the driver, for partitions that wait."""

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NULL_LISTENER) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied.

        Waits out failures of the environment. Raises `RejectedError` or `ConfigurationError` from any task, and at the
        end the `GuaranteeError` of a partition that was stopped; with `once` also the `MassRefusalError` of one that
        would wait. `listener` is called on threads of this process, for each slice in order per partition.
        """
        backoff, goes_on = Backoff(), True
        faults = PartitionFaults(self._work.name, self._on_moved_back, listener)
        heard = LoggingListener(listener)
        holds = Holds(heard, once=once)
        while goes_on and not stop.is_set():
            attempt = _Attempt(faults, heard, holds, self._sink)
            try:
                goes_on = self._run_query(attempt, stop, once)
            except MassRefusalError as error:  # with `once`: the other partitions are read to their end
                raise_gravest([*faults.stopped.values(), error])
            except (TransientError, GuaranteeError) as error:
                if not isinstance(error, TransientError) and not faults.absorb(error):
                    raise
                pause = backoff.after(progress=attempt.has_applied)
                fields = {"pipeline": self._work.name, "pause_seconds": pause, "error": str(error)}
                logger.warning("pipeline.restart", extra=fields)
                listener.restarted([place for place in attempt.places if place not in faults.stopped], error)
                stop.wait(pause)
            finally:
                if self._worker is not None:
                    self._worker.close()
                if self._sink is not None:
                    self._sink.close()
        raise_gravest([*faults.stopped.values()])

    def _run_query(self, attempt: _Attempt, stop: threading.Event, once: bool) -> bool:
        """Runs the query from one start to its end; returns whether another start should follow."""
        found = self._where_to_start(attempt)
        if not found.places:
            return False
        attempt.places = found.places
        with checkpoint_folder() as folder, spark_errors():
            query = self._query(found, attempt, folder, once).start()
            try:
                has_changed = self._watch(query, found, attempt, stop, once)
            finally:
                attempt.finish()
                query.stop()
        for place in attempt.accepted:
            attempt.holds.release(place)
        if attempt.failure is not None:
            raise attempt.failure
        if once:
            raise_gravest([*attempt.holds.errors])
        return has_changed

    def _query(self, found: Survey, attempt: _Attempt, folder: str, once: bool) -> DataStreamWriter:
        if self._sink is None:
            task = slice_task(self._work, read_expected, dict(found.ids), once=once)
            outcomes = self._records(found).mapInArrow(encode_as_text(task), TEXT_SCHEMA)
        else:
            outcomes = self._records(found).mapInArrow(self._sink.task(), self._sink.schema)
        name = f"inorder {self._work.name}: {', '.join(self._work.topics)} #{next(_STARTS)}"
        writer = outcomes.writeStream.queryName(name).foreachBatch(attempt.on_batch)
        writer = writer.option("checkpointLocation", folder)
        if once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime="0 seconds").options(**_UNLOGGED)

    def _where_to_start(self, attempt: _Attempt) -> Survey:
        found = survey(self._sink or self._work, self._source)
        for error in () if self._sink is None else self._sink.moved_back():
            attempt.faults.absorb(error)
        attempt.faults.expect(found.pointers)
        attempt.faults.stop_all(found.stopped)
        found = replace(found, stopped=dict(attempt.faults.stopped))
        fields = {"pipeline": self._work.name, "partitions": dict(found.partitions)}
        logger.info("pipeline.start", extra=fields)
        return found

    def _records(self, found: Survey) -> DataFrame:
        options = {f"kafka.{key}": value for key, value in self._kafka.items()} | {
            **which_partitions(found),
            "startingOffsets": json.dumps(starting_offsets(found)),
            "maxOffsetsPerTrigger": str(self._max_offsets),
            "includeHeaders": str(self._work.needs_headers).lower(),
        }
        columns = (*RECORD_COLUMNS, "headers") if self._work.needs_headers else RECORD_COLUMNS
        return self._spark.readStream.format("kafka").options(**{**_READING, **options}).load().select(*columns)

    def _watch(
        self, query: StreamingQuery, found: Survey, attempt: _Attempt, stop: threading.Event, once: bool
    ) -> bool:
        """Waits for the end of the attempt; returns whether it ended because the topics changed."""
        check_at, progress = time.monotonic() + CHECK_SECONDS, QueryProgress(query, attempt.listener)
        while query.isActive and not stop.is_set():
            if attempt.wait(_WATCH_SECONDS):
                return False
            progress.poll()
            if self._try_again(attempt):
                return True
            if not once and time.monotonic() > check_at:
                if self._have_changed(found):
                    return True
                check_at = time.monotonic() + CHECK_SECONDS
        if not stop.is_set() and attempt.failure is None:
            raise_if_stopped()
            progress.poll()
            if (error := query.exception()) is not None:
                attempt.failure = classify_spark_error(error)
        return False

    def _try_again(self, attempt: _Attempt) -> bool:
        """Whether a partition that waits may go on: its next records are read and applied here."""
        holds = attempt.holds
        for place in holds.due():
            if place in attempt.faults.stopped:
                continue
            try:
                outcome = self._apply_head(place, attempt)
            except MassRefusalError as error:
                holds.hold(place, error)
            except TransientError as error:
                holds.postpone(place)
                logger.debug("pipeline.head_not_tried", extra={"error": str(error)})  # the tasks meet it too
            else:
                if outcome is not None:
                    attempt.faults.expect({place: outcome.next_offset})
                    attempt.listener.applied(outcome)
                # This query has dropped later records of it, so it waits on until the next one reads from the pointer.
                attempt.accepted.append(place)
                return True
        return False

    def _apply_head(self, place: Place, attempt: _Attempt) -> SliceOutcome | None:
        """Applies the next few records of a partition; None if it has none."""
        if self._worker is None:
            self._worker = self._work.open()
        begin = begin_at(self._worker, self._source, [place])
        reader = self._source.open(begin.offsets, headers=self._work.needs_headers, epochs=begin.epochs)
        with closing(reader):
            slices = reader.read(HEAD_RECORDS, HEAD_SECONDS).slices
        if not slices:
            return None
        attempt.holds.saw(place, slices[0].next_offset)
        waited, topic_id = attempt.holds.waited(place), begin.ids.get(place[0])
        head = replace(slices[0], topic_id=topic_id, waited_seconds=waited, is_held=True)
        return apply_at(self._worker, head, attempt.faults.expected().get(place, 0))

    def _have_changed(self, found: Survey) -> bool:
        try:
            return found.has_changed(self._source)
        except TransientError as error:
            # The query waits for the broker itself.
            logger.debug("pipeline.partitions_unknown", extra={"error": str(error)})
            return False


def which_partitions(found: Survey) -> dict[str, str]:
    """Which partitions Spark reads: all of each topic, or a list of them where some are stopped."""
    if not found.stopped:
        return {"subscribe": ",".join(found.partitions)}
    return {"assign": json.dumps({topic: list(map(int, some)) for topic, some in starting_offsets(found).items()})}


def starting_offsets(found: Survey) -> dict[str, dict[str, int]]:
    """Where each partition continues: at its pointer, or at the earliest record if it has none."""
    offsets: dict[str, dict[str, int]] = {}
    for topic, number in found.places:
        offsets.setdefault(topic, {})[str(number)] = found.pointers.get((topic, number), _EARLIEST)
    return offsets


class _Attempt:
    """One start of the query: what it applied, what it expects to find, and how it failed."""

    def __init__(
        self,
        faults: PartitionFaults,
        listener: Listener,
        holds: Holds | None = None,
        sink: BatchSink | None = None,
    ) -> None:
        """`faults` has the pointers seen committed in this run, `holds` what waits; attempts share both.

        With a `sink` the driver commits each batch as a whole; else the tasks have committed theirs.
        """
        self.listener = listener
        self._sink = sink
        self.faults = faults
        self.holds = holds or Holds(listener)
        self.accepted: list[Place] = []
        """Partitions that waited, and whose next records were applied by the driver."""
        self._in_batch = threading.Lock()
        self._over = threading.Event()
        self.failure: Exception | None = None
        self.has_applied = False
        self.places: list[Place] = []
        """What it reads, once it has begun."""

    def on_batch(self, batch: DataFrame, _batch_id: int) -> None:
        """Applies a micro-batch. It never raises: an error through Py4J would lose its type."""
        with self._in_batch:
            if self._over.is_set():
                return
            try:
                self._apply(batch)
            except SPARK_FAILURES as error:
                self._fail(error if isinstance(error, PythonException) else classify_spark_error(error))
            except Exception as error:  # noqa: BLE001 - `run` raises it on the caller's thread
                self._fail(error)

    def wait(self, seconds: float) -> bool:
        """Waits for the end of the attempt; returns whether it has ended."""
        return self._over.wait(seconds)

    def finish(self) -> None:
        """Lets a running batch end within the budget; later batches apply nothing."""
        in_time = self._in_batch.acquire(timeout=STOP_BUDGET_SECONDS)
        self._over.set()
        if in_time:
            self._in_batch.release()

    def _apply(self, batch: DataFrame) -> None:
        if self._sink is not None:
            for outcome in self._sink.commit(batch):
                self._note(outcome)
            return
        # A task must not pass the refused records of a partition that waits.
        set_expected(batch, {**self.faults.expected(), **dict.fromkeys(self.holds.places)})
        outcomes, errors = split_results(collect_rows(batch))
        for outcome in outcomes:
            self._note(outcome)
        for error in errors:
            if isinstance(error, MassRefusalError) and error.place is not None:
                self.holds.hold(error.place, error)
        raise_gravest([error for error in errors if not isinstance(error, MassRefusalError)])

    def _note(self, outcome: SliceOutcome) -> None:
        self.has_applied = True
        self.faults.expect({(outcome.topic, outcome.partition): outcome.next_offset})
        self.listener.applied(outcome)

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._over.set()


class QueryProgress:
    """Reports the durations of each batch of a query to the listener."""

    def __init__(self, query: StreamingQuery, listener: Listener) -> None:
        self._query = query
        self._listener = listener
        self._last = -1

    def poll(self) -> None:
        """Reports the last batch, once."""
        progress = self._query.lastProgress
        if progress is not None and progress.batchId > self._last and _WORK in progress.durationMs:
            self._last = progress.batchId
            self._report(progress)

    def _report(self, progress: StreamingQueryProgress) -> None:
        phases = {name: milliseconds / 1000 for name, milliseconds in progress.durationMs.items() if name != _WHOLE}
        fields = {"batch": progress.batchId, "rows": progress.numInputRows, "phases": phases}
        logger.debug("pipeline.batch", extra=fields)
        self._listener.spent(phases)


# Expected pointers: from the driver to the tasks of a batch.


def set_expected(batch: DataFrame, pointers: Mapping[Place, int | None]) -> None:
    """Passes pointers to the tasks of the next job of this thread."""
    text = orjson.dumps([(topic, partition, pointer) for (topic, partition), pointer in pointers.items()])
    batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, text.decode())


def read_expected() -> dict[Place, int | None]:
    """The pointers, in a task; without them it applies nothing, as it could not detect a pointer that moved back."""
    task = TaskContext.get()
    text = None if task is None else task.getLocalProperty(PROPERTY)
    if text is None:
        raise GuaranteeError("A task has no expected pointers.", hint="Do not set PYSPARK_PIN_THREAD.")
    return {(topic, partition): pointer for topic, partition, pointer in orjson.loads(text)}


# Outcomes: from the tasks to the driver.


def encode_as_text(task: Task) -> Task:
    """The task with each of its rows as JSON text."""

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in task(batches):
            yield pa.RecordBatch.from_pydict({"outcome": [orjson.dumps(row).decode() for row in rows.to_pylist()]})

    return encode


def collect_rows(batch: DataFrame) -> list[Row]:
    """Runs a batch of such tasks and returns their rows, ordered by partition and slice."""
    return [Row(**orjson.loads(row.getString(0))) for row in batch._jdf.collectAsList()]


# Checkpoint folders.


@contextmanager
def checkpoint_folder() -> Iterator[str]:
    """A fresh folder for `checkpointLocation`, removed when the block ends."""
    remove_abandoned(Path(tempfile.gettempdir()))
    making = Path(tempfile.mkdtemp(prefix=_MAKING))
    lock = os.open(making / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Locked before it gets the name that other processes look for: an unlocked folder counts as abandoned.
    folder = making.rename(making.with_name(making.name.replace(_MAKING, _PREFIX, 1)))
    try:
        yield str(folder / "checkpoint")
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> list[Path]:
    """Removes the folders of processes that have ended, as far as permissions allow, and returns them."""
    found = [folder for folder in parent.glob(f"{_PREFIX}*") if _is_abandoned(folder)]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_abandoned(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False  # being created or removed at this moment, or owned by another user
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
