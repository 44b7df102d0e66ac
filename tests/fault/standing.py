"""Diagnosis of a path without progress: the state of each hop and the stacks of Spark's threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inorder.demo.path import PARTITIONS, TOPIC, DemoPath
from inorder.embedded.stack import Service
from inorder.kafka.admin import Cluster
from inorder.model.errors import InorderError

DUMP_SECONDS = 2.0
"""How long a JVM may take to write its thread dump."""


@contextmanager
def told_where_it_stands(path: DemoPath) -> Iterator[None]:
    """Prints the diagnosis if the block fails. Records of an open transaction show as written, not committed."""
    try:
        yield
    except BaseException:
        print(f"\n{path.position()}", *_ends(path), *_waiting_for_kafka(path.pipeline), sep="\n  ")  # noqa: T201
        raise


def _ends(path: DemoPath) -> Iterator[str]:
    pointers = path.watching.execute("SELECT partition, next_offset FROM inorder_pointer ORDER BY 1").fetchall()
    yield f"applied up to {dict(pointers)}"
    try:
        cluster = Cluster(path.settings.kafka.properties)
        yield f"committed up to {cluster.committed_ends(TOPIC, PARTITIONS)}"
        yield f"written up to {cluster.written_ends(TOPIC, PARTITIONS)}"
    except InorderError as error:
        yield f"the broker says: {error}"


def _waiting_for_kafka(service: Service) -> Iterator[str]:
    """The stacks of a driver's threads that are in the Kafka client, out of the dump that SIGQUIT makes a JVM write."""
    begin = service.log_path.stat().st_size
    for pid in _descendants(service.pid):
        with suppress(OSError):  # it has just ended
            if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(pid, signal.SIGQUIT)
    threading.Event().wait(DUMP_SECONDS)
    dump = service.log_path.read_bytes()[begin:].decode(errors="replace")
    yield from (stack for stack in dump.split("\n\n") if "org.apache.kafka.clients" in stack)


def _descendants(pid: int | None) -> Iterator[int]:
    for child in Path("/proc").glob("[0-9]*"):
        if pid is not None and _parent(child) == pid:
            yield int(child.name)
            yield from _descendants(int(child.name))


def _parent(process: Path) -> int | None:
    with suppress(OSError):
        # State and parent follow the name of the program, which may contain anything.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return None
