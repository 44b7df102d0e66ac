"""A slow network in front of a broker: a proxy that passes requests on at no more than so many bytes a second.

The broker advertises the proxy's address, or clients would go past it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from inorder.embedded import Kafka
from inorder.embedded.server import HOST
from tests.proxy import Proxy, end

CHUNK = 16 * 1024


class SlowProxy(Proxy):
    """Passes answers on at once, and requests at `bytes_a_second`, which a test may change."""

    def __init__(self) -> None:
        super().__init__((HOST, 0))
        self.bytes_a_second = float("inf")
        self._pace = threading.Lock()

    def close(self) -> None:
        self.bytes_a_second = float("inf")
        super().close()

    def pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(CHUNK):
                with self._pace:  # one network for all connections
                    time.sleep(len(chunk) / self.bytes_a_second)
                server.sendall(chunk)
        end(client, server)


class BehindProxy(Kafka):
    """A broker that clients reach through a proxy only."""

    def __init__(self, folder: Path, proxy: SlowProxy) -> None:
        super().__init__(folder)
        self._proxy = proxy

    def more_settings(self, controller_port: int) -> str:  # noqa: ARG002 - the signature of its base
        self._proxy.target = HOST, self.port
        return f"advertised.listeners=PLAINTEXT://{self._proxy.address}\n"
