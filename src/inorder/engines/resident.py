"""The `resident` engine: long-lived Spark tasks that own partitions, read them and apply slice after slice.

Structured Streaming plans, logs and commits every batch, which costs tenths of a second however little there is to do.
A resident task does this work once, at its start: it reads the pointers and opens its partitions with librdkafka. From
then on a record is on its way to the table as soon as the broker has it. Spark places the tasks on its executors, gives
them their Python and restarts them when an executor is lost.

    survey     read pointers and extents of the topics; refuse a pointer whose record is gone
    launch     share the partitions out among as many tasks as Spark has slots for, each a job of its own; on a cluster
               more tasks follow, up to one for each partition, which wait for a slot (`pipeline.tasks`)
    consume    a task reads what is there, at most 40,000 records, applies it as a slice, and reports now and then
    move       where tasks come or go, partitions move between them; the others read on (`placement.py`)
    change     new partitions or a new topic: all tasks end after their current slice, and a new launch follows
    failure    of the environment: that task is restarted after a pause; a violated guarantee: that task is restarted
               without the partition (`faults.py`); any other: all tasks end, and it is raised
    stop       the driver closes its connections; tasks finish the current slice, within a budget; Spark cancels the
               rest

**What is authoritative.** The pointer row, as with every engine (`inorder/pipeline/slice.py`): a slice is applied in
one transaction that locks the pointer, drops what is below it and moves it.

**What is only a hint.** Which task owns a partition. The driver shares partitions out, but nothing enforces it, and
nothing needs to: two tasks on one partition both read it, and the lock admits one for each record. The other finds the
pointer moved and drops what it holds. So there is no lease, no fence and no heartbeat between tasks; a superfluous task
is a waste of work and no danger.

Also hints: the reports of tasks, the driver's memory of pointers (it can only make a task stop with an error, never
apply a record), Spark's belief that a task runs.

Invariants:

1. A task begins at the pointers and never skips a record: the client fails where an offset is gone.
2. A task applies the slices of a partition in the order in which it read them, and none after one that failed.
3. A task ends when its connection to the driver is closed, at the latest one read (0.1 s) and one slice later.

Failure table:

| what happens                              | what follows                                                         |
|-------------------------------------------|----------------------------------------------------------------------|
| Python worker killed during a slice       | the database rolls back; Spark restarts the task, which begins at    |
|                                           | the pointers                                                         |
| Python worker killed after COMMIT         | the new task begins behind it                                        |
| executor lost                             | its partitions wait 2 s for a successor, then other tasks have them; |
|                                           | the lost task waits for a slot, and gets partitions when it has one  |
| executor added                            | a task that waits runs there; after 4 s it gets partitions of others |
| executor decommissioned                   | its tasks end after their slice, their partitions go to other tasks, |
|                                           | and Spark runs the tasks elsewhere                                   |
| executors lost again and again            | Spark gives up the task's job after four; the driver restarts it     |
| driver killed                             | connections close, tasks end; a new driver begins at the pointers    |
| driver unreachable, its host lost         | the task's reports are not acknowledged for 30 s, then it ends;      |
|                                           | Spark also ends executors without a driver                           |
| Spark replaces a task that is still alive | both run on one partition until the driver closes the older          |
| (a zombie)                                | connection: the pointer lock decides record by record                |
| two drivers, of any engine                | the same                                                             |
| driver paused                             | tasks continue; it reads their reports later                         |
| task paused inside a transaction          | the database ends its idle session; when the task wakes up, the      |
|                                           | slice fails and is read again from the pointer                       |
| database away, session ended              | the task ends with `TransientError` and is restarted after a pause   |
| COMMIT sent, answer lost                  | the slice is applied again; the pointer decides (`settle_commit`)    |
| a table refuses most records of a         | the task keeps its first records and tries them again after pauses;  |
| partition (`holds.py`)                    | its other partitions go on. Then it reads all from the pointers      |
| broker away                               | the client waits for it; nothing is restarted                        |
| database restored from a backup, or a     | the pointer is below one that was seen committed: the partition      |
| replica promoted that lacks commits       | stops, or is replayed (`on_moved_back`); the others go on            |
| topic truncated                           | the client finds the offset gone, or the leader epoch of the last    |
|                                           | record ended below it: the partition stops                           |
| topic deleted and re-created              | its id differs from that of the pointers, when a task begins and in  |
|                                           | the driver's check every 2 s: its partitions stop                    |
| fewer free cores than tasks               | tasks without a core wait in Spark's queue, and the others have      |
|                                           | their partitions; the engine must have its cores to itself           |
"""

from __future__ import annotations

import logging
import threading
import time

from pyspark.sql import SparkSession

from inorder.engines.faults import OnMovedBack, PartitionFaults
from inorder.engines.placement import CountWatch, count_tasks, share_out
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.engines.resident_tasks import CHECK_SECONDS, WATCH_SECONDS, ResidentTasks, SliceTaskPlan
from inorder.engines.session import SHARED_BY, Backoff, all_slots, is_cluster, raise_gravest, spark_errors
from inorder.engines.slice_work import SliceWork, TopicSource
from inorder.engines.survey import Survey, survey
from inorder.model.errors import MassRefusalError, TransientError

logger = logging.getLogger("inorder.pipeline")


class Resident:
    """Runs one pipeline on a Spark session until it is stopped, or once to the end of its topics."""

    def __init__(
        self,
        spark: SparkSession,
        work: SliceWork,
        source: TopicSource,
        *,
        on_moved_back: OnMovedBack = "stop",
        tasks: int | None = None,
    ) -> None:
        """`tasks` is how many run at most; by default as many as are of use."""
        self._spark = spark
        self._work = work
        self._source = source
        self._on_moved_back = on_moved_back
        self._tasks = tasks

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NULL_LISTENER) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied.

        Waits out failures of the environment. Raises `RejectedError` or `ConfigurationError` from any task, and at the
        end the `GuaranteeError` of a partition that was stopped; with `once` also the `MassRefusalError` of one that
        would wait. `listener` is called on threads of this process, in order per partition.
        """
        backoff, goes_on = Backoff(), True
        faults = PartitionFaults(self._work.name, self._on_moved_back, listener)
        while goes_on and not stop.is_set():
            try:
                goes_on = self._launch(stop, once, faults, listener)
            except MassRefusalError as error:  # with `once`: the other partitions are read to their end
                raise_gravest([*faults.stopped.values(), error])
            except TransientError as error:
                pause = backoff.after(progress=False)
                fields = {"pipeline": self._work.name, "pause_seconds": pause, "error": str(error)}
                logger.warning("pipeline.restart", extra=fields)
                listener.restarted((), error)
                stop.wait(pause)
            else:
                backoff = Backoff()
        raise_gravest([*faults.stopped.values()])

    def _launch(self, stop: threading.Event, once: bool, faults: PartitionFaults, listener: Listener) -> bool:
        """Runs the tasks of one launch to their end; returns whether another launch should follow."""
        found = survey(self._work, self._source)
        faults.expect(found.pointers)
        faults.stop_all(found.stopped)
        places = [place for place in found.places if place not in faults.stopped]
        if not places:
            return False
        # Those that will wait for a slot follow when these run: Spark starts jobs in any order.
        shares = tuple(share_out(places, self._count_tasks(len(places), may_wait=False)))
        tasks = ResidentTasks(self._spark, SliceTaskPlan(self._work, self._source, shares, once), faults, listener)
        fields = {"pipeline": self._work.name, "partitions": dict(found.partitions), "tasks": len(shares)}
        logger.info("pipeline.start", extra=fields)
        tasks.start()
        try:
            has_changed = self._watch(tasks, found, stop, once)
        finally:
            tasks.stop()
        raise_gravest(tasks.failures or tasks.unfinished)
        return has_changed

    def _watch(self, tasks: ResidentTasks, found: Survey, stop: threading.Event, once: bool) -> bool:
        """Waits for the end of the tasks; returns whether they must be launched again."""
        check_at, count = time.monotonic() + CHECK_SECONDS, CountWatch(tasks.count)
        while tasks.is_running() and not stop.wait(WATCH_SECONDS):
            tasks.tend()
            if once or time.monotonic() < check_at:
                continue
            if self._has_changed(found):
                return True
            if count.look(self._count_tasks(len(found.places), may_wait=self._may_wait())):
                tasks.resize(count.count)
            check_at = time.monotonic() + CHECK_SECONDS
        return False

    def _has_changed(self, found: Survey) -> bool:
        try:
            return found.has_changed(self._source)
        except TransientError as error:
            # The tasks wait for the broker themselves.
            logger.debug("pipeline.partitions_unknown", extra={"error": str(error)})
            return False

    def _may_wait(self) -> bool:
        """Not in a local Spark, which never grows. Nor beside other jobs, as tasks that wait take their slots."""
        is_alone = self._spark.conf.get(SHARED_BY, "1") == "1"
        return is_cluster(self._spark) and (is_alone or self._tasks is not None)

    def _count_tasks(self, partitions: int, *, may_wait: bool) -> int:
        return count_tasks(partitions, self._tasks, count_slots(self._spark), may_wait=may_wait)


def count_slots(spark: SparkSession) -> int:
    """How many tasks a job may run at the same time: all that Spark has slots for, or its part of them.

    While there is no executor, how many Spark assumes for a start.
    """
    with spark_errors():
        # Not defaultParallelism: it is two where a cluster has one core, and the second task would wait for ever.
        slots = all_slots(spark) or spark.sparkContext.defaultParallelism
        return max(1, slots // int(spark.conf.get(SHARED_BY, "1") or 1))
