"""Processor time of a process and everything that it started, as Linux counts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the table of processes."""

    pid: int
    parent: int
    seconds: float
    """Its own time, and that of its children which have ended."""

    @classmethod
    def parse(cls, stat: str, ticks_per_second: int) -> Process:
        """From `/proc/PID/stat`; the name in it may hold anything, brackets and blanks too."""
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        ticks = sum(int(field) for field in fields[11:15])
        return cls(int(head.split(" ", 1)[0]), int(fields[1]), ticks / ticks_per_second)


def tree_seconds(processes: list[Process], root: int) -> float:
    """The time of `root` and of all its living descendants."""
    by_parent: dict[int, list[Process]] = {}
    for process in processes:
        by_parent.setdefault(process.parent, []).append(process)
    waiting = [process for process in processes if process.pid == root]
    total = 0.0
    while waiting:
        process = waiting.pop()
        total += process.seconds
        waiting += by_parent.get(process.pid, [])
    return total


def cpu_seconds(pid: int | None) -> float | None:
    """What a process and its descendants have used so far; None where the system does not tell."""
    processes = list(_running()) if pid is not None else []
    return tree_seconds(processes, pid) if pid is not None and processes else None


def _running() -> Iterator[Process]:
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    for entry in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            yield Process.parse(entry.read_text(errors="replace"), ticks_per_second)
