"""A gate in front of a server: open, it forwards everything; shut, it refuses and counts connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

HOST = "127.0.0.1"
CHUNK = 65_536


class Gate:
    """An address of a server that can be closed without touching the server."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._listener = socket.create_server((HOST, 0))
        self._is_open = True
        self._passing: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="gate")]
        self.turned_away = 0

    @property
    def url(self) -> str:
        """The URL of the server through this gate."""
        port = self._listener.getsockname()[1]
        return self._url.set(host=HOST, port=port).render_as_string(hide_password=False)

    def shut(self) -> None:
        """Closes all connections and refuses new ones."""
        with self._lock:
            self._is_open = False
            _end(*self._passing)
            self._passing.clear()

    def open(self) -> None:
        """Accepts connections again."""
        with self._lock:
            self._is_open = True

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        _end(self._listener)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._let_in(client)

    def _let_in(self, client: socket.socket) -> None:
        with self._lock:
            if not self._is_open:
                self.turned_away += 1
                client.close()
                return
            server = socket.create_connection((self._url.host or HOST, self._url.port or 5432))
            self._passing |= {client, server}
        for source, target in ((client, server), (server, client)):
            thread = threading.Thread(target=_pass, args=(source, target), name="gate")
            self._threads.append(thread)
            thread.start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    _end(source, target)


def _end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):  # already disconnected
            each.shutdown(socket.SHUT_RDWR)
        each.close()
