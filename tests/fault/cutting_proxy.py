"""A proxy in front of PostgreSQL that drops the answer to a commit: the server has committed, the client does not know.

It reads the server's side of the protocol message by message: a byte for the kind, four for the length, the rest. A
statement has been committed when `CommandComplete` (C, with its tag, as `DELETE 20`) is followed by `ReadyForQuery` (Z)
outside of a transaction block. Clients must connect without encryption.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

HOST = "127.0.0.1"
CHUNK = 65_536
HEAD = 5


class CuttingProxy:
    """Forwards everything, until it is set to cut the connection after a commit."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._listener = socket.create_server((HOST, 0))
        self._lock = threading.Lock()
        self._wanted = ""
        self._connections: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self.cuts = 0

    @property
    def url(self) -> str:
        """The URL of the database through this proxy."""
        port = self._listener.getsockname()[1]
        plain = self._url.set(host=HOST, port=port).update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
        return plain.render_as_string(hide_password=False)

    def cut_after(self, command: str) -> None:
        """Drops the answer to the next commit of this command that changed a row, and closes its connection."""
        with self._lock:
            self._wanted = command

    def has_cut(self, before: int) -> bool:
        """Whether there were more cuts than the given number."""
        return self.cuts > before

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._listener, *self._connections)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._url.host or HOST, self._url.port or 5432))
                self._connections |= {client, server}
                self._start(self._pass_questions, client, server)
                self._start(self._pass_answers, client, server)

    def _start(self, work: object, client: socket.socket, server: socket.socket) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=(client, server), name="proxy")
        self._threads.append(thread)
        thread.start()

    def _pass_questions(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(CHUNK):
                server.sendall(chunk)
        _end(client, server)

    def _pass_answers(self, client: socket.socket, server: socket.socket) -> None:
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
        _end(client, server)

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


def _end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):  # already disconnected
            each.shutdown(socket.SHUT_RDWR)
        each.close()
