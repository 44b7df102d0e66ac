"""Where a benchmark happens: embedded servers with their settings, services and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from inorder.bench.worker import Worker
from inorder.embedded import Stack
from inorder.embedded.service import Service
from inorder.kafka.topics import ensure_topic
from inorder.settings import Settings
from inorder.stores.postgres.connect import connect
from inorder.wiring import install_schema

TOPIC = "bench"
LIVE_TOPIC = "bench-live"
PARTITIONS = 4

_CONFIG = """\
[kafka]
"bootstrap.servers" = "{kafka}"
[database]
url = "{postgres}"
[relay]
group = "bench"
[pipeline.upsert]
topic = "bench"
"""

Say = Callable[[str], None]


class BenchPlace:
    """Servers, tables and a connection to look with, as a context manager; workers end with it."""

    def __init__(self, stack: Stack, say: Say) -> None:
        self._stack = stack
        self.say = say
        self.settings: Settings
        self.url: str
        self.watching: psycopg.Connection[Any]
        self._config: Path

    def __enter__(self) -> Self:
        self._stack.start()
        try:
            self._prepare(self._stack.folder)
        except BaseException:
            self._stack.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.watching.close()
        finally:
            self._stack.stop()

    @property
    def folder(self) -> Path:
        """Where servers, services and workers keep their logs."""
        return self._stack.folder

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
        service = Service(command[0], [*command, "--config", str(self._config)], self.folder)
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

    def _prepare(self, folder: Path) -> None:
        addresses = self._stack.addresses()
        self._config = folder / "inorder.toml"
        self._config.write_text(_CONFIG.format(**addresses))
        self.settings = Settings.load(self._config)
        self.url = addresses["postgres"]
        for layout in ("native", "table"):
            install_schema(self.settings, layout)
        self.watching = connect(self.url, "inorder bench (watch)", autocommit=True)
