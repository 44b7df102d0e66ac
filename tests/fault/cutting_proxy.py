"""A proxy in front of PostgreSQL that drops the answer to a commit: the server has committed, the client does not know.

It reads the server's side of the protocol message by message: a byte for the kind, four for the length, the rest. A
statement has been committed when `CommandComplete` (C, with its tag, as `DELETE 20`) is followed by `ReadyForQuery` (Z)
outside of a transaction block. Clients must connect without encryption.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy.engine import make_url

from inorder.embedded.server import HOST
from tests.proxy import CHUNK, Proxy, end

HEAD = 5


class CuttingProxy(Proxy):
    """Forwards everything, until it is set to cut the connection after a commit."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        super().__init__((self._url.host or HOST, self._url.port or 5432))
        self._wanted = ""
        self.cuts = 0

    @property
    def url(self) -> str:
        """The URL of the database through this proxy."""
        off = {"sslmode": "disable", "gssencmode": "disable"}
        plain = self._url.set(host=HOST, port=self.port).update_query_dict(off)
        return plain.render_as_string(hide_password=False)

    def cut_after(self, command: str) -> None:
        """Drops the answer to the next commit of this command that changed a row, and closes its connection."""
        with self._lock:
            self._wanted = command

    def has_cut(self, before: int) -> bool:
        """Whether there were more cuts than the given number."""
        return self.cuts > before

    def pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        tag = b""
        with suppress(OSError):
            for message in _messages(server):
                if message[:1] == b"C":
                    tag = message[HEAD:-1]
                elif message[:1] == b"Z" and message[HEAD:] == b"I":
                    if self._is_wanted(tag):
                        break
                    tag = b""
                client.sendall(message)
        end(client, server)

    def _is_wanted(self, tag: bytes) -> bool:
        command, _, count = tag.decode().partition(" ")
        with self._lock:
            if not self._wanted or command != self._wanted or count == "0":
                return False
            self._wanted = ""
            self.cuts += 1
            return True


def _messages(server: socket.socket) -> Iterator[bytes]:
    """The server's messages, one by one."""
    waiting = b""
    while chunk := server.recv(CHUNK):
        waiting += chunk
        while len(waiting) >= HEAD and len(waiting) > (length := int.from_bytes(waiting[1:HEAD])):
            yield waiting[: length + 1]
            waiting = waiting[length + 1 :]
