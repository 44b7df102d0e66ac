"""Several servers together: started at once, stopped together, in one run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import Self

from inorder.embedded.cassandra import Cassandra
from inorder.embedded.kafka import Kafka
from inorder.embedded.mariadb import MariaDB
from inorder.embedded.postgres import Postgres
from inorder.embedded.redis import Redis
from inorder.embedded.run_folder import RunFolder
from inorder.embedded.server import Server
from inorder.model.errors import ConfigurationError

_KINDS: Mapping[str, type[Server]] = {kind.name: kind for kind in (Postgres, Kafka, MariaDB, Redis, Cassandra)}


class Stack:
    """The wanted servers as one context manager.

    `folder` names a run folder to keep and reuse; without it each stack gets a fresh one. `ports` fixes the
    port of a part by its name; the others get free ones. `durable=False` lets PostgreSQL forgo fsync, for
    tests; `postgres` holds settings of PostgreSQL on top of ours.

    ```python
    with Stack(("postgres", "kafka")) as stack:
        stack.addresses()  # {"postgres": "postgresql+psycopg://…", "kafka": "127.0.0.1:…"}
    ```
    """

    def __init__(
        self,
        parts: Sequence[str] = ("postgres", "kafka"),
        folder: Path | str | None = None,
        *,
        ports: Mapping[str, int] | None = None,
        durable: bool = True,
        postgres: Mapping[str, str] | None = None,
    ) -> None:
        for part in (*parts, *(ports or ())):
            if part not in _KINDS:
                raise ConfigurationError(f"There is no embedded {part!r}.", hint=f"There are: {', '.join(_KINDS)}.")
        self._parts = tuple(dict.fromkeys(parts))
        self._wanted_folder = Path(folder) if folder is not None else None
        self._ports = dict(ports or {})
        self._durable = durable
        self._postgres = dict(postgres or {})
        self._run: RunFolder | None = None
        self.servers: dict[str, Server] = {}

    @property
    def folder(self) -> Path:
        """The run folder; it holds one folder per server, with its log."""
        if self._run is None:
            raise ConfigurationError("The stack has no folder before it is started.", hint="Call start() first.")
        return self._run.path

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes of the stack."""
        return tuple(pid for server in self.servers.values() for pid in server.pids)

    def addresses(self) -> dict[str, str]:
        """What clients are configured with, by the name of the part."""
        return {name: server.url for name, server in self.servers.items()}

    def start(self) -> Self:
        """Start all parts at once; when one cannot start, the others are stopped and its error is raised."""
        if self._run is not None:
            return self
        self._run = RunFolder.fresh() if self._wanted_folder is None else RunFolder.named(self._wanted_folder)
        self.servers = {part: self._server(part) for part in self._parts}
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def _server(self, part: str) -> Server:
        folder, port = self.folder / part, self._ports.get(part)
        if part == Postgres.name:
            return Postgres(folder, port=port, durable=self._durable, options=self._postgres)
        return _KINDS[part](folder, port=port)

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(self.servers) or 1, thread_name_prefix="embedded-start") as pool:
            try:
                for future in as_completed([pool.submit(server.start) for server in self.servers.values()]):
                    future.result()
            except BaseException:  # also Ctrl-C: nobody waits for the others to become ready
                for server in self.servers.values():
                    server.give_up_starting()
                raise

    def stop(self) -> None:
        """Stop all parts and give the folder back; stopping twice does nothing."""
        if run := self._run:
            self._run = None
            try:
                with ThreadPoolExecutor(len(self.servers) or 1, thread_name_prefix="embedded-stop") as pool:
                    futures = [pool.submit(server.stop) for server in self.servers.values()]
                for future in futures:
                    future.result()
            finally:
                run.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
