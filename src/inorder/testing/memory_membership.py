"""Memberships of one process, held to what those of the databases do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from inorder.ports.membership import Standing


@dataclass
class MemoryGroup:
    """Who is alive until when, by one clock."""

    clock: Callable[[], float] = time.monotonic
    known_until: dict[str, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class MemoryMembership:
    """A `Membership` in memory."""

    def __init__(self, group: MemoryGroup, *, instance: str, seconds: float = 3.0) -> None:
        self._group = group
        self._instance = instance
        self._seconds = seconds

    def beat(self) -> Standing:
        """Known for `seconds` from now."""
        with self._group.lock:
            now = self._group.clock()
            self._group.known_until[self._instance] = now + self._seconds
            alive = [name for name, until in self._group.known_until.items() if until > now]
        return Standing(len(alive), sum(name < self._instance for name in alive))

    def leave(self) -> None:
        """Forgotten at once."""
        with self._group.lock:
            self._group.known_until.pop(self._instance, None)
