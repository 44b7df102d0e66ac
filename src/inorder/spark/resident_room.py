"""How many resident tasks Spark has room for, and when to believe that it is less than it was.

A lost executor is mostly replaced within seconds, and its tasks run again there. To share its partitions out at once
would stop the healthy tasks too, and again when the successor is there. So less room is believed only when it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from inorder.spark.faults import spark_errors

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
