"""A TCP proxy in front of a server; what it does to the traffic is up to those that derive from it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from inorder.embedded.server import HOST

CHUNK = 65_536


class Proxy:
    """An address of its own from which each connection leads to the server, until the block ends."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        """Where new connections lead; those that exist stay where they are."""
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._lock = threading.RLock()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        end(self._listener)
        self.end_connections()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def end_connections(self) -> None:
        """Ends all connections that exist."""
        with self._lock:
            end(*self._connections)
            self._connections.clear()

    def start(self, work: Callable[..., None], *arguments: object) -> None:
        """Runs a part of the proxy in a thread that the end of the block waits for."""
        thread = threading.Thread(target=work, args=arguments, name="proxy")
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def admits(self) -> bool:
        """Whether a client that connects now is let in."""
        return True

    def pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the client says, until one side ends."""
        pass_on(client, server)

    def pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the server says, until one side ends."""
        pass_on(server, client)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._let_in(client)

    def _let_in(self, client: socket.socket) -> None:
        with self._lock:
            if not self.admits():
                client.close()
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:  # not there yet, or no longer
                client.close()
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections |= {client, server}
        self.start(self.pass_requests, client, server)
        self.start(self.pass_answers, client, server)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copies one direction of a connection, and ends both when it ends."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    end(source, target)


def end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):  # already disconnected
            each.shutdown(socket.SHUT_RDWR)
        each.close()
