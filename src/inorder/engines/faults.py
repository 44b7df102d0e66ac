"""What a run does about a violated guarantee: it concerns one partition, and the others go on.

A partition whose pointer moved back, whose next record is gone or whose topic is another one is stopped: nothing of it
is applied any more, it is in the log and in the job's health, and the run ends with its error when it ends. The other
partitions and tables are read on. A run in which every partition is stopped ends at once.

**A pointer that moved back** means that the database did: a replica that lacks the last commits was promoted, or a
backup was restored. Rows and pointer went back together, in one database, so the records from the pointer on lead to
the same rows again. Whether that is wanted depends on why the database went back. With `on_moved_back = "replay"` the
run forgets the higher pointer and continues from the one that it finds. It is for databases whose replicas may lack the
last commits; with `stop` an operator looks first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Literal, TypeAlias

from inorder.engines.progress import Listener
from inorder.model.errors import GuaranteeError, MovedBackError
from inorder.model.partitioning import Place

logger = logging.getLogger("inorder.pipeline")

OnMovedBack: TypeAlias = Literal["stop", "replay"]


class PartitionFaults:
    """The partitions that a run has stopped, and the pointers that it saw committed; any thread may call it."""

    def __init__(self, pipeline: str, on_moved_back: OnMovedBack, listener: Listener) -> None:
        self.stopped: dict[Place, GuaranteeError] = {}
        self._expected: dict[Place, int] = {}
        self._pipeline = pipeline
        self._replays = on_moved_back == "replay"
        self._listener = listener
        self._lock = threading.Lock()

    def expected(self) -> dict[Place, int]:
        """A copy of the pointers that were seen committed."""
        with self._lock:
            return dict(self._expected)

    def expect(self, pointers: Mapping[Place, int]) -> None:
        """Adds pointers. A higher one seen before stays, so that a task detects the fall."""
        with self._lock:
            for place, pointer in pointers.items():
                self._expected[place] = max(pointer, self._expected.get(place, 0))

    def stop_all(self, found: Mapping[Place, GuaranteeError]) -> None:
        """Stops the partitions that a survey found unreadable."""
        for place, error in found.items():
            self._stop(place, error)

    def absorb(self, error: Exception) -> bool:
        """Whether the run may go on after an error: without its partition, or from the pointer that was found."""
        if not isinstance(error, GuaranteeError) or error.place is None:
            return False
        if isinstance(error, MovedBackError) and self._replays:
            with self._lock:
                self._expected.pop(error.place, None)
            fields = {"pipeline": self._pipeline, "topic": error.place[0], "partition": error.place[1]}
            logger.warning("pipeline.replay", extra={**fields, "error": error.message})
        else:
            self._stop(error.place, error)
        return True

    def _stop(self, place: Place, error: GuaranteeError) -> None:
        with self._lock:
            is_known, self.stopped[place] = place in self.stopped, error
        if not is_known:
            fields = {"pipeline": self._pipeline, "topic": place[0], "partition": place[1], "error": str(error)}
            logger.error("pipeline.partition_stopped", extra=fields)
            self._listener.stopped(place, error)
