"""How often Python looks for cycles in a process of ours: a worker of Spark's, or `inorder relay run`.

A slice, or a batch of rows, makes tens of thousands of objects and frees them all without help, because none of them
refers back. At the usual pace the search for cycles takes a fifth of the time of a slice and a third of that of a
batch, and finds nothing.

Spark's daemon makes a worker search through everything after each task, and the next task waits for it. The modules and
connections of a worker are some hundred thousand objects, which took about 40 ms to search, several times as long as a
small slice takes to apply. So they are set aside once.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

OBJECTS: Final = 50_000
"""So many more than before make it look."""

_tasks: Final = count()


def look_for_cycles_less_often() -> None:
    """For the process that calls it; never called in a driver or by a relay as a library: those are the user's."""
    if gc.get_threshold()[0] not in (0, OBJECTS):  # 0: somebody has switched it off
        gc.set_threshold(OBJECTS)


def set_aside_what_stays() -> None:
    """Call it at the start of every short task; it acts at the second, when the first one has loaded everything.

    Once only: a task's own objects are set aside with the rest, and cycles among them are never found again.
    """
    if next(_tasks) == 1:
        gc.freeze()
