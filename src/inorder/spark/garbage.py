"""How often Python looks for cycles in a worker of Spark's.

A slice makes tens of thousands of objects and frees them all without help, because none of them refers back. At the
usual pace the search for cycles takes a fifth of the time there, and finds nothing.
"""

from __future__ import annotations

import gc
from typing import Final

OBJECTS: Final = 50_000
"""So many more than before make it look."""


def look_for_cycles_less_often() -> None:
    """For the process that calls it; never called in the driver, which is the user's."""
    if gc.get_threshold()[0] not in (0, OBJECTS):  # 0: somebody has switched it off
        gc.set_threshold(OBJECTS)
