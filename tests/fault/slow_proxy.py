"""A slow network in front of a broker: a proxy that passes requests on at no more than so many bytes a second.

The broker advertises the proxy's address, or clients would go past it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from inorder.embedded import Kafka

HOST = "127.0.0.1"
CHUNK = 16 * 1024


class SlowProxy:
    """Passes answers on at once, and requests at `bytes_a_second`, which a test may change."""

    def __init__(self) -> None:
        self.broker_port = 0
        self.bytes_a_second = float("inf")
        self._listener = socket.create_server((HOST, 0))
        self._connections: set[socket.socket] = set()
        self._pace = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="proxy")]

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bytes_a_second = float("inf")
        _end(self._listener, *self._connections)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection((HOST, self.broker_port))
                except OSError:  # not there yet
                    client.close()
                    continue
                self._connections |= {client, broker}
                for source, target, is_slow in ((client, broker, True), (broker, client, False)):
                    thread = threading.Thread(target=self._forward, args=(source, target, is_slow), name="proxy")
                    self._threads.append(thread)
                    thread.start()

    def _forward(self, source: socket.socket, target: socket.socket, is_slow: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                if is_slow:
                    with self._pace:  # one network for all connections
                        time.sleep(len(chunk) / self.bytes_a_second)
                target.sendall(chunk)
        _end(source, target)


class BehindProxy(Kafka):
    """A broker that clients reach through a proxy only."""

    def __init__(self, folder: Path, proxy: SlowProxy) -> None:
        super().__init__(folder)
        self._proxy = proxy

    def more_settings(self, controller_port: int) -> str:  # noqa: ARG002 - the signature of its base
        self._proxy.broker_port = self.port
        return f"advertised.listeners=PLAINTEXT://{self._proxy.bootstrap}\n"


def _end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):  # already disconnected
            each.shutdown(socket.SHUT_RDWR)
        each.close()
