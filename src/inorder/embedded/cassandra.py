"""Apache Cassandra 5.0 as a cluster of one node."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template

from inorder.embedded.jars import fetch, find_java
from inorder.embedded.server import HOST, Server, free_port

# Operations of the native protocol, version 4.
_STARTUP, _OPTIONS, _QUERY, _AUTH_RESPONSE = 0x01, 0x05, 0x07, 0x0F
_SUPPORTED, _AUTH_SUCCESS = 0x06, 0x10
_STARTUP_BODY = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"
_USER = _FIRST_PASSWORD = "cassandra"  # noqa: S105 - of every new node; the first start changes it


class Cassandra(Server):
    name = "cassandra"
    title = "Apache Cassandra"
    disk_megabytes = 500

    def configure(self) -> None:
        template = Template(_resource("cassandra.yaml"))
        authenticator = "AllowAllAuthenticator" if self.password is None else "PasswordAuthenticator"
        settings = template.substitute(
            port=self.port, storage_port=free_port(), data=self.folder / "data", authenticator=authenticator
        )
        (self.folder / "cassandra.yaml").write_text(settings, encoding="utf-8")
        (self.folder / "logback.xml").write_text(_resource("cassandra-logback.xml"), encoding="utf-8")

    def command(self) -> Sequence[str]:
        flags = [line for line in _resource("cassandra-jvm.options").splitlines() if line.startswith("-")]
        places = [
            f"-Dcassandra.config=file://{self.folder}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.folder}/data",
            f"-Dlogback.configurationFile={self.folder}/logback.xml",
        ]
        jars = os.pathsep.join(str(path) for path in fetch("cassandra"))
        return [
            str(find_java()),
            *flags,
            *places,
            "-cp",
            jars,
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def responds(self) -> bool:
        """Whether it lists its protocol versions, and accepts its password; it does not listen before it can serve."""
        password = self.password
        if password is None:
            return _talk(self.port, (_OPTIONS, b"")) == _SUPPORTED
        if _talk(self.port, *_login(password)) == _AUTH_SUCCESS:
            return True
        change = f"ALTER ROLE {_USER} WITH PASSWORD = '{password}'".encode()
        query = len(change).to_bytes(4, "big") + change + b"\x00\x01\x00"  # at consistency ONE, without values
        _talk(self.port, *_login(_FIRST_PASSWORD), (_QUERY, query))
        return False  # ready when it accepts the new password: a node remembers the old one for two seconds

    @property
    def url(self) -> str:
        """A value for `[journal] store`, without the keyspace."""
        password = self.password
        login = "" if password is None else f"{_USER}:{password}@"
        return f"cassandra://{login}{HOST}:{self.port}"

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        return {"journal": {"store": f"{self.url}/journal"}}


def _login(password: str) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    token = f"\0{_USER}\0{password}".encode()
    return (_STARTUP, _STARTUP_BODY), (_AUTH_RESPONSE, len(token).to_bytes(4, "big") + token)


def _talk(port: int, *requests: tuple[int, bytes]) -> int | None:
    """Sends frames one after the other; returns the operation of the last response, None where there is none.

    It shows that a node is ready without its driver installed."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            for operation, body in requests:
                # Version, flags, stream, operation, length of the body.
                connection.sendall(b"\x04\x00\x00\x00" + bytes([operation]) + len(body).to_bytes(4, "big") + body)
                answer = connection.recv(9, socket.MSG_WAITALL)
                connection.recv(int.from_bytes(answer[5:], "big"), socket.MSG_WAITALL)
    except OSError:
        return None
    return answer[4] if len(answer) > 4 else None


def _resource(name: str) -> str:
    return files("inorder.embedded").joinpath(name).read_text("utf-8")
