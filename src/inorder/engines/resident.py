"""The `resident` engine: long-lived Spark tasks that own partitions, read them and apply slice after slice.

Structured Streaming plans, logs and commits every batch, which costs tenths of a second however little there is to do.
A resident task does this work once, at its start: it reads the pointers and opens its partitions with librdkafka. From
then on a record is on its way to the table as soon as the broker has it. Spark places the tasks on its executors, gives
them their Python and restarts them when an executor is lost.

    survey     read pointers and extents of the topics; refuse a pointer whose record is gone
    launch     share the partitions out among as many tasks as Spark has slots for, each a job of its own
    consume    a task reads what is there, at most 40,000 records, applies it as a slice, and reports now and then
    change     new partitions, a new topic, or another number of slots that lasts: all tasks end after their current
               slice, and a new launch follows
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
| executor lost                             | as above, on another executor or on its successor; if there is none  |
|                                           | for 10 s, a new launch shares all partitions out among fewer tasks   |
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
| fewer free cores than tasks               | tasks without a core wait in Spark's queue, and so do their          |
|                                           | partitions; the engine must have its cores to itself                 |
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from inorder.engines.faults import OnMovedBack, PartitionFaults
from inorder.engines.progress import NULL_LISTENER, Listener
from inorder.engines.resident_tasks import ResidentTasks, SliceTaskPlan
from inorder.engines.session import SHARED_BY, Backoff, all_slots, raise_gravest, spark_errors
from inorder.engines.slice_work import SliceWork, TopicSource
from inorder.engines.survey import Survey, share_out, survey
from inorder.model.errors import MassRefusalError, TransientError

logger = logging.getLogger("inorder.pipeline")

CHECK_SECONDS = 2.0
"""How often the driver checks for new partitions and another number of slots."""
GROWN_SECONDS = 4.0
"""An executor that is there for so long counts as one more."""
LOST_SECONDS = 10.0
"""An executor that is gone for so long counts as lost."""
_WATCH_SECONDS = 0.05


class Resident:
    """Runs one pipeline on a Spark session until it is stopped, or once to the end of its topics."""

    def __init__(
        self, spark: SparkSession, work: SliceWork, source: TopicSource, *, on_moved_back: OnMovedBack = "stop"
    ) -> None:
        self._spark = spark
        self._work = work
        self._source = source
        self._on_moved_back = on_moved_back

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
        shares = tuple(share_out(places, count_slots(self._spark)))
        tasks = ResidentTasks(self._spark, SliceTaskPlan(self._work, self._source, shares, once), faults, listener)
        fields = {"pipeline": self._work.name, "partitions": dict(found.partitions), "tasks": len(shares)}
        logger.info("pipeline.start", extra=fields)
        tasks.start()
        try:
            has_changed = self._watch(tasks, found, SlotWatch(len(shares), len(places)), stop, once)
        finally:
            tasks.stop()
        raise_gravest(tasks.failures or tasks.unfinished)
        return has_changed

    def _watch(self, tasks: ResidentTasks, found: Survey, used: SlotWatch, stop: threading.Event, once: bool) -> bool:
        """Waits for the end of the tasks; returns whether they must be launched again."""
        check_at = time.monotonic() + CHECK_SECONDS
        while tasks.is_running() and not stop.wait(_WATCH_SECONDS):
            if once or time.monotonic() < check_at:
                continue
            if self._has_changed(found, used):
                return True
            check_at = time.monotonic() + CHECK_SECONDS
        return False

    def _has_changed(self, found: Survey, used: SlotWatch) -> bool:
        try:
            if found.has_changed(self._source):
                return True
        except TransientError as error:
            # The tasks wait for the broker themselves.
            logger.debug("pipeline.partitions_unknown", extra={"error": str(error)})
        return used.has_changed(count_slots(self._spark))


def count_slots(spark: SparkSession) -> int:
    """How many tasks a job may run at the same time: all that Spark has slots for, or its part of them.

    While there is no executor, how many Spark assumes for a start.
    """
    with spark_errors():
        # Not defaultParallelism: it is two where a cluster has one core, and the second task would wait for ever.
        tasks = all_slots(spark) or spark.sparkContext.defaultParallelism
        return max(1, tasks // int(spark.conf.get(SHARED_BY, "1") or 1))


class SlotWatch:
    """Decides when another number of slots calls for a new launch. More slots than partitions are of no use.

    A lost executor is usually replaced within seconds, and its tasks run again there. To share its partitions out at
    once would stop the healthy tasks too, and a second time when the successor is there. So a launch with fewer tasks
    follows only when slots are missing for `LOST_SECONDS`. A new launch stops all tasks, and a cluster that grows gets
    its executors one by one, so one with more tasks follows when there have been more slots for `GROWN_SECONDS`.
    """

    def __init__(self, tasks: int, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = tasks
        self._partitions = partitions
        self._clock = clock
        self._change = 0
        """1 where there are more slots than tasks, -1 where there are fewer."""
        self._since = clock()

    def has_changed(self, now: int) -> bool:
        """Whether there have been more usable slots for some seconds, or fewer for long."""
        usable = min(now, self._partitions)
        change = (usable > self._tasks) - (usable < self._tasks)
        if change != self._change:
            self._change, self._since = change, self._clock()
        lasted = self._clock() - self._since
        return change != 0 and lasted >= (GROWN_SECONDS if change > 0 else LOST_SECONDS)
