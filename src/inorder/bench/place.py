"""Where a benchmark happens: embedded servers with their settings, services and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inorder.bench.worker import Worker
from inorder.embedded import Stack
from inorder.embedded.service import Service
from inorder.kafka.topics import ensure_topic
from inorder.playground import Playground

TOPIC = "bench"
LIVE_TOPIC = "bench-live"
PARTITIONS = 4

_SETTINGS = """\
[relay]
group = "bench"
delivery = "{delivery}"
[pipeline.upsert]
topic = "bench"
"""

Say = Callable[[str], None]


class BenchPlace(Playground):
    """Servers to measure on; workers and services end with the blocks that they run in."""

    def __init__(self, stack: Stack, say: Say, *, delivery: str) -> None:
        super().__init__(stack, _SETTINGS.format(delivery=delivery))
        self.say = say

    @property
    def kafka(self) -> dict[str, Any]:
        """The client's properties."""
        return dict(self.settings.kafka.properties)

    def topic(self, name: str) -> str:
        """Makes a topic of the usual size."""
        ensure_topic(self.kafka, name, PARTITIONS)
        return name

    @contextmanager
    def service(self, *command: str) -> Iterator[Service]:
        """An `inorder` command of these servers, running for as long as the block lasts."""
        service = Service(command[0], [*command, "--config", str(self.config)], self.folder)
        service.start()
        try:
            yield service
        finally:
            service.stop()

    @contextmanager
    def worker(self, role: str, **task: Any) -> Iterator[Worker]:
        """A worker at its task; it is stopped when the block ends before it does."""
        worker = Worker(role, task, self.folder)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()
