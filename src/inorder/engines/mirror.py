"""Pointers as the committed offsets of a consumer group, for everybody else's tools.

kafka-consumer-groups, Kafbat, Burrow and KEDA read lag from a group's offsets, and nothing else. With
`pipeline.mirror_group` a job writes its pointers there.

**What is authoritative.** The pointer rows in the database. The group's offsets are copies, some seconds old: nothing
of inorder reads them, and a job that cannot write them logs it and goes on. They never lie above what is applied.

**Markers of transactions.** A transactional topic ends with the marker of a commit, which has an offset but is no
record, so a pointer alone would show a lag that never becomes 0. Where no record is left behind a pointer, the end of
the partition is written instead.

**A group without members.** Offsets are committed by the admin client, which joins no group. The broker refuses them
while the group has members, so the group must have no other use. It forgets the offsets of such a group some days
after they were last committed (`offsets.retention.minutes`); so all of them are committed again now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from inorder.engines.slice_work import TopicSource
from inorder.engines.survey import NO_ENDS, behind
from inorder.model.errors import InorderError
from inorder.model.partitioning import Place

log = logging.getLogger("inorder.pipeline")

MIRROR_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 600.0
STOP_SECONDS: Final = 10.0
"""How long the end of a job waits for the last offsets to be committed."""

Offsets = Mapping[Place, int]


def mirrored(
    source: TopicSource, topics: Iterable[str], pointers: Offsets, closed: Offsets = NO_ENDS
) -> dict[Place, int]:
    """The offsets to commit: the pointers, or the ends of partitions of which nothing is left. May raise.

    `closed` are the ends of closed generations: copies may lie behind them, which are never applied.
    """
    # Ends first: a record that is written in between is behind the end that is committed.
    ends = {(topic, number): one.end for topic in topics for number, one in (source.extents(topic) or {}).items()}
    waiting = behind(source, sorted({topic for topic, _ in ends}), pointers, closed)
    at = {place: pointer for place, pointer in pointers.items() if place in ends}
    return {place: max(pointer, ends[place]) if waiting.get(place) == 0 else pointer for place, pointer in at.items()}


class PointerMirror:
    """Commits offsets on a thread of its own for as long as the block lasts, and once more at its end."""

    def __init__(
        self,
        read: Callable[[], Offsets],
        commit: Callable[[Offsets], None],
        *,
        seconds: float = MIRROR_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` returns the offsets to commit; both may block, and raise `InorderError`."""
        self._read = read
        self._commit = commit
        self._seconds = seconds
        self._clock = clock
        self._committed: dict[Place, int] = {}
        self._again_at = 0.0
        self._failed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inorder-mirror", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def copy(self) -> None:
        """Commits what has changed, or everything from time to time; logs the first of several failures in a row."""
        try:
            found = dict(self._read())
            is_due = self._clock() >= self._again_at
            changed = {place: at for place, at in found.items() if is_due or self._committed.get(place) != at}
            if changed:
                self._commit(changed)
            self._committed = found
            if is_due:
                self._again_at = self._clock() + AGAIN_SECONDS
            self._failed = False
        except InorderError as error:
            if not self._failed:
                log.warning("pipeline.mirror_failed", extra={"error": str(error)})
            self._failed = True

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.wait(self._seconds)
            self.copy()
