"""Garbage-collector settings of inorder's own processes: Spark workers and `inorder relay run`.

A slice, or a batch of rows, allocates tens of thousands of objects and frees them all by reference count, because none
of them refers back. With Python's default threshold the collector takes a fifth of the time of a slice and a third of
that of a batch, and finds nothing.

Spark's daemon runs a full collection in a worker after each task, and the next task waits for it. The modules and
connections of a worker are some hundred thousand objects; traversing them takes about 40 ms, several times as long as
applying a small slice. `freeze_once` moves them to the permanent generation.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

OBJECTS: Final = 50_000
"""The threshold of the youngest generation: a collection starts after so many net allocations."""

_tasks: Final = count()


def relax() -> None:
    """Raises the threshold in this process. Never called in a Spark driver or in an embedded relay: those are the
    user's processes."""
    if gc.get_threshold()[0] not in (0, OBJECTS):  # 0: the collector is switched off
        gc.set_threshold(OBJECTS)


def freeze_once() -> None:
    """Call it at the start of every short task; it acts at the second, when the first one has loaded everything.

    It acts only once, because it also freezes the task's own objects, and cycles among frozen objects are never found.
    """
    if next(_tasks) == 1:
        gc.freeze()
