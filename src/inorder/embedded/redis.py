"""Redis 6.2 from the binaries inside the jar `embedded-redis`."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from inorder.embedded.jars import unpack
from inorder.embedded.server import HOST, Server, ask, write_private
from inorder.model.errors import UnreachableError

_PROGRAMS = {
    ("Linux", "x86_64"): "6-v5-linux-amd64",
    ("Linux", "aarch64"): "7-linux-arm64",
    ("Darwin", "x86_64"): "6-v5-darwin-amd64",
    ("Darwin", "arm64"): "6-v5-darwin-arm64",
}


class Redis(Server):
    """A Redis that keeps its data in an append-only file."""

    name = "redis"
    title = "Redis"
    disk_megabytes = 100

    def configure(self) -> None:
        """Writes what must not be an argument."""
        password = self.password
        write_private(self._settings_file, "" if password is None else f"requirepass {password}\n")

    @property
    def _settings_file(self) -> Path:
        return self.folder / "redis.conf"

    def command(self) -> Sequence[str]:
        program = unpack("redis", "redis-server-6.2.", 40) / program_name()
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.data),
            "appendonly": "yes",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [str(program), str(self._settings_file), *arguments]

    def responds(self) -> bool:
        """Whether it answers PING, which it refuses while it loads its data."""
        password = self.password
        login = b"" if password is None else f"AUTH {password}\r\n".encode()
        return ask(self.port, login + b"PING\r\n").removeprefix(b"+OK\r\n").startswith(b"+PONG")

    @property
    def url(self) -> str:
        """A value for `redis.url`."""
        password = self.password
        login = "" if password is None else f":{password}@"
        return f"redis://{login}{HOST}:{self.port}/0"

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        return {"redis": {"url": self.url}}


def program_name() -> str:
    """The program for this platform."""
    machine = platform.system(), platform.machine()
    if machine not in _PROGRAMS:
        raise UnreachableError(
            f"There is no embedded Redis for {' '.join(machine)}.", hint="Use your own Redis by its URL."
        )
    return _PROGRAMS[machine]
