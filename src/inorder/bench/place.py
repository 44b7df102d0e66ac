"""Where a benchmark runs: embedded servers with their settings, services and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from inorder.bench.options import RelaySetting
from inorder.bench.worker import Worker
from inorder.database.sql import quoted
from inorder.embedded import Stack
from inorder.embedded.stack import Program, Service
from inorder.kafka.admin import ensure_topic
from inorder.playground import Playground

TOPIC = "bench"
LIVE_TOPIC = "bench-live"
PARTITIONS = 4

_SETTINGS = """\
[relay]
group = "bench"
delivery = "{delivery}"
strategy = "{strategy}"
layout = "{layout}"
[pipeline.upsert]
topic = "bench"
"""

Say = Callable[[str], None]
AnyProgram = TypeVar("AnyProgram", bound=Program)


class BenchPlace(Playground):
    """Servers to measure on; workers and services end with the blocks that they run in."""

    def __init__(self, stack: Stack, say: Say, setting: RelaySetting) -> None:
        super().__init__(stack, _SETTINGS.format(**setting.as_dict()))
        self.say = say

    def prepare(self) -> None:
        """Prints where the logs are."""
        self.say(f"Logs are in {self.folder}.")

    @property
    def kafka(self) -> dict[str, Any]:
        return dict(self.settings.kafka.properties)

    def topic(self, name: str) -> str:
        """Creates a topic of the usual size."""
        ensure_topic(self.kafka, name, PARTITIONS)
        return name

    def is_empty(self, table: str) -> bool:
        """Whether no row is visible in a table."""
        statement = f"SELECT EXISTS (SELECT FROM {quoted(table)})"  # noqa: S608 - quoted
        return self.watching.execute(statement).fetchone() == (False,)

    @property
    def database_pid(self) -> int:
        """The process whose children serve the database's clients."""
        return self.server_pid("postgres")

    @property
    def database_address(self) -> tuple[str, int]:
        """Host and port, for programs that take no URL."""
        return self._stack.servers["postgres"].address

    @property
    def database_password(self) -> str:
        """The same, for its user `postgres`."""
        return self._stack.servers["postgres"].password or "unused"

    def server_pid(self, name: str) -> int:
        """The first process of a server."""
        return self._stack.servers[name].pids[0]

    def store_url(self, store: str) -> str:
        """Where journals may be replicated to."""
        return self.url if store == "postgres" else f"{self._stack.addresses()[store]}/journal"

    def service(self, *command: str, config: Path | None = None) -> Service:
        """An `inorder` command of these servers; not started yet. It has its own settings where a file is given."""
        return Service(command[0], [*command, "--config", str(config or self.config)], self.folder)

    @contextmanager
    def running(self, program: AnyProgram) -> Iterator[AnyProgram]:
        """A program that runs for as long as the block lasts, unless it ends before."""
        program.start()
        try:
            yield program
        finally:
            program.stop()

    def worker(self, role: str, **task: Any) -> AbstractContextManager[Worker]:
        """A worker at its task; it is stopped when the block ends before it does."""
        return self.running(Worker(role, task, self.folder))
