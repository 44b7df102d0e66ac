"""A work without Spark: this process reads all partitions itself, one slice after the other.

It is an engine like the others, with one difference: it does not wait out what fails it. A command is run again.
"""

from __future__ import annotations

import threading
from contextlib import closing

from inorder.pipeline.attending import apply_all, starts
from inorder.pipeline.progress import NOBODY, Listener, tell
from inorder.pipeline.survey import survey
from inorder.ports.partition_reader import Place, TopicSource
from inorder.ports.slice_work import SliceOutcome, SliceWork


class InProcess:
    """Runs one work on the thread that calls it."""

    def __init__(self, work: SliceWork, source: TopicSource) -> None:
        self._work = work
        self._source = source

    def run(self, stop: threading.Event, once: bool = False, listener: Listener = NOBODY) -> None:
        """Blocks until `stop` is set or, with `once`, until the topics are read to their end; raises what fails it."""
        found = survey(self._work, self._source)
        expected: dict[Place, int] = dict(found.pointers)
        with closing(self._work.open()) as worker:
            begin = starts(worker, found.places)
            reader = self._source.open(begin, headers=self._work.needs_headers, tells_ends=once)
            with closing(reader):
                apply_all(
                    reader,
                    worker,
                    _Telling(listener),
                    expected=expected,
                    goes_on=lambda: not stop.is_set(),
                    unread=set(found.places) if once else None,
                )


class _Telling:
    """Hands everything on at once."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def note(self, outcome: SliceOutcome) -> None:
        tell(self._listener, outcome)

    def spent(self, reading: float, applying: float) -> None:
        self._listener.spent({"read": reading, "apply": applying})
