"""Processes that Spark has started, found by command line and parent."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.injections import injects

EXECUTOR = b"CoarseGrainedExecutorBackend"
"""Part of the command line of an executor's JVM; executors of `local[N]` are threads and have none."""
_DAEMON = b"pyspark.daemon"
_DRIVER = b"org.apache.spark.deploy.SparkSubmit"


def python_workers(jvm: int) -> list[int]:
    """The worker processes that the Python daemon of a driver or an executor has forked."""
    parents = {pid: parent for pid in _saying(_DAEMON) if (parent := parent_of(pid)) is not None}
    daemons = {pid for pid, parent in parents.items() if parent == jvm}
    return sorted(pid for pid, parent in parents.items() if parent in daemons)


def executors(service: int) -> list[int]:
    """The executors of a service, oldest first; those of others are not touched."""
    return sorted(pid for pid in _saying(EXECUTOR) if service in _ancestors(pid))


def spark_of(service: int) -> int:
    """The JVM of a service's driver."""
    return next(pid for pid in _saying(_DRIVER) if service in _ancestors(pid))


def executor_of(worker: int) -> int:
    """The executor to which a Python worker belongs."""
    known = set(_saying(EXECUTOR))
    return next(pid for pid in _ancestors(worker) if pid in known)


@injects("kill -9 of a Spark worker or executor")
def kill(process: int) -> None:
    """Kills it with SIGKILL, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def is_alive(process: int) -> bool:
    """Whether it exists and is not a zombie process."""
    return _state(process) not in (None, "Z")


def is_stopped(process: int) -> bool:
    """Whether it is stopped."""
    return _state(process) == "T"


def parent_of(process: int) -> int | None:
    """Its parent; None when it has ended."""
    return int(fields[1]) if (fields := _stat(process)) else None


def _ancestors(process: int) -> list[int]:
    found: list[int] = []
    while (parent := parent_of(found[-1] if found else process)) is not None and parent > 1:
        found.append(parent)
    return found


def _saying(words: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if words in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def _state(process: int) -> str | None:
    return fields[0] if (fields := _stat(process)) else None


def _stat(process: int) -> list[str]:
    """State, parent and so on; nothing when it has ended. Its name, in brackets, may hold anything."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []
