"""The `resident` engine: long-lived Spark tasks that own partitions, read them and apply slice after slice.

Structured Streaming plans, logs and commits every batch, which costs tenths of a second however little there is to do.
A resident task does this work once, when it begins: it asks the pointers, opens its partitions with librdkafka, and
from then on a record is on its way to the table as soon as the broker has it. Spark's part is to place the tasks on
its executors, to give them their Python and to run them anew when an executor is lost.

    survey     pointers and extents of the topics; refuse a pointer that cannot be reached
    launch     share the partitions out among as many tasks as Spark has room for, each a job of its own
    work       a task reads what is there, at most 10,000 records, applies it as a slice, and reports now and then
    change     more partitions, a new topic, or other room: all tasks end after the slice in hand, and a new launch
    failure    of the environment: that task is begun again after a pause; any other: all tasks end, and it is raised
    stop       the driver hangs up; tasks finish the slice in hand, within a budget; then Spark ends what is left

**What is authoritative.** The pointer row, as with every engine (`inorder/pipeline/slice.py`): a slice is applied in
one transaction that locks the pointer, drops what is below it and moves it.

**What is only a hint.** Who owns a partition. The driver shares partitions out, but nothing enforces it, and nothing
needs to: two tasks on one partition both read it, and the lock lets one apply each record. The other finds the pointer
moved and drops what it holds. So there is no lease, no fence and no heartbeat between tasks; a task that should be gone
is a waste of work and no danger.

Also hints: the reports of tasks, the driver's memory of pointers (it can only make a task stop loudly, never apply
something), Spark's belief that a task runs.

Invariants:

1. A task begins at the pointers and never passes over a record: the client fails where an offset is gone.
2. A task applies a partition's slices in the order in which it read them, and none after one that failed.
3. A task ends when its line to the driver is closed, at the latest one look (0.1 s) and one slice later.

Failure table:

| what happens                              | what follows                                                         |
|-------------------------------------------|----------------------------------------------------------------------|
| Python worker killed in mid-slice         | the database rolls back; Spark runs the task anew, from the pointers |
| Python worker killed after COMMIT         | the new task begins behind it                                        |
| executor lost                             | as above, on another or on its successor; if none is there for 10 s, |
|                                           | a new launch shares all partitions out among fewer tasks             |
| executors lost again and again            | Spark gives the task's job up after four; it is begun again          |
| driver killed                             | lines close, tasks end; a new driver begins at the pointers          |
| driver unreachable, its host lost         | the task's reports stay unanswered for 30 s, then it ends; Spark     |
|                                           | ends executors without a driver besides                              |
| Spark takes a task for lost and begins it | both run on one partition until the driver hangs up on the older:    |
| anew, and the old one lives on (a zombie) | the pointer lock decides record by record                            |
| two drivers, of whatever engine           | the same                                                             |
| driver paused                             | tasks go on; it hears their reports later                            |
| task paused inside a transaction          | the database ends its idle session; when it wakes up the slice fails |
|                                           | and is read again from the pointer                                   |
| database away, session ended              | the task ends with `TransientError`, is begun again after a pause    |
| COMMIT sent, answer lost                  | the slice is tried again; the pointer tells (pipeline/slice.py)      |
| broker away                               | the client waits for it; nothing is begun anew                       |
| database restored from a backup           | the pointer is below one that was seen committed: `GuaranteeError`,  |
|                                           | all tasks end                                                        |
| topic truncated or made anew              | the client finds the offset gone: `GuaranteeError`                   |
| fewer free cores than tasks               | tasks without one wait in Spark's queue, and their partitions too;   |
|                                           | the engine must have its cores to itself                             |
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from inorder.engines.progress import NOBODY, Listener
from inorder.engines.resident_tasks import Crew, SliceDuty
from inorder.engines.session import Pauses, raise_gravest, spark_errors
from inorder.engines.slice_work import SliceWork, TopicSource
from inorder.engines.survey import Survey, spread, survey
from inorder.kafka.admin import Place
from inorder.model.errors import TransientError

logger = logging.getLogger("inorder.pipeline")

LOOK_SECONDS = 2.0
"""How often the driver looks for new partitions and other room."""
_WATCH_SECONDS = 0.05


class Resident:
    """Runs one pipeline on a Spark session until it is told to stop, or once to the end of its topics."""

    def __init__(self, spark: SparkSession, work: SliceWork, source: TopicSource) -> None:
        self._spark = spark
        self._work = work
        self._source = source

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NOBODY) -> None:
        """Blocks until `stop` is set or, with `once`, until what the topics hold at the start is applied.

        Failures of the environment are waited out. Raises `GuaranteeError`, `RejectedError` or
        `ConfigurationError` from wherever it happened. `listener` is called on threads of ours, in order per partition.
        """
        pauses, expected, goes_on = Pauses(), dict[Place, int](), True
        while goes_on and not stop.is_set():
            try:
                goes_on = self._launch(stop, once, expected, listener)
            except TransientError as error:
                pause = pauses.after(progress=False)
                logger.warning("pipeline.restart pipeline=%s pause=%.1fs reason=%s", self._work.name, pause, error)
                stop.wait(pause)
            else:
                pauses = Pauses()

    def _launch(self, stop: threading.Event, once: bool, expected: dict[Place, int], listener: Listener) -> bool:
        """One crew from its launch to its end; whether another one should follow."""
        found = survey(self._work, self._source)
        expected |= {place: max(pointer, expected.get(place, 0)) for place, pointer in found.pointers.items()}
        shares = tuple(spread(found.places, room(self._spark)))
        crew = Crew(self._spark, SliceDuty(self._work, self._source, shares, once), expected, listener)
        logger.info(
            "pipeline.start pipeline=%s partitions=%s tasks=%d", self._work.name, dict(found.partitions), len(shares)
        )
        crew.start()
        try:
            has_changed = self._watch(crew, found, Room(len(shares), len(found.places)), stop, once)
        finally:
            crew.stop()
        raise_gravest(crew.failures)
        return has_changed

    def _watch(self, crew: Crew, found: Survey, used: Room, stop: threading.Event, once: bool) -> bool:
        """Waits for the end of the crew; whether it must be launched anew."""
        look_at = time.monotonic() + LOOK_SECONDS
        while crew.is_at_work() and not stop.wait(_WATCH_SECONDS):
            if once or time.monotonic() < look_at:
                continue
            if self._has_changed(found, used):
                return True
            look_at = time.monotonic() + LOOK_SECONDS
        return False

    def _has_changed(self, found: Survey, used: Room) -> bool:
        try:
            if found.has_grown(self._source):
                return True
        except TransientError as error:
            logger.debug("pipeline.not_asked %s", error)  # the tasks wait for the broker themselves
        return used.has_changed(room(self._spark))


# How many resident tasks Spark has room for, and when to believe that it is less than it was.
#
# A lost executor is mostly replaced within seconds, and its tasks run again there. To share its partitions out at once
# would stop the healthy tasks too, and again when the successor is there. So less room is believed only when it lasts.

LOST_SECONDS = 10.0
"""An executor that is gone for so long is taken for lost."""


def room(spark: SparkSession) -> int:
    """How many tasks can run at the same time; while no executor is there, how many Spark would take for a start."""
    with spark_errors():
        context = spark.sparkContext
        scala = context._jsc.sc()
        # Not defaultParallelism: it says two where a cluster has one core, and the second task would wait for ever.
        tasks: int = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
        return tasks or context.defaultParallelism


class Room:
    """What a launch made use of, and whether another launch is due; more room than partitions is no use."""

    def __init__(self, tasks: int, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = tasks
        self._partitions = partitions
        self._clock = clock
        self._less_since: float | None = None

    def has_changed(self, now: int) -> bool:
        """Whether there is more room that is of use, or has been less for long."""
        usable = min(now, self._partitions)
        if usable >= self._tasks:
            self._less_since = None
            return usable > self._tasks
        if self._less_since is None:
            self._less_since = self._clock()
        return self._clock() - self._less_since >= LOST_SECONDS
