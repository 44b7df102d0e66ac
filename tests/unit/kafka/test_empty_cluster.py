"""A broker that stops, or has just started, may know no broker and no topic. Asking it must not end the process.

librdkafka's DescribeCluster aborts on such an answer (`rd_kafka_admin_response_parse: Assertion rko_result`): the error
of the parser is dropped, and there is no result.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

_API_VERSIONS, _METADATA = 18, 3
_UNSUPPORTED_VERSION = 35
_ASK = """
import sys
from inorder.kafka.admin import Cluster
from inorder.model.errors import UnreachableError
cluster = Cluster({"bootstrap.servers": sys.argv[1]})
try:
    for _ in range(10):
        cluster.info()
except UnreachableError as error:
    print("unreachable:", error.message)
"""


class StoppingBroker:
    """Names itself as the only broker and the controller a few times, then names none."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._left = 3
        self._guard = threading.Lock()

    def accept(self) -> None:
        while True:
            try:
                connection = self._server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while len(head := requests.read(12)) == 12:
                size, key, version, correlation = struct.unpack(">ihhi", head)
                requests.read(size - 8)
                body = struct.pack(">i", correlation) + self._answer(key, version)
                connection.sendall(struct.pack(">i", len(body)) + body)

    def _answer(self, key: int, version: int) -> bytes:
        if key == _API_VERSIONS and version > 0:
            return struct.pack(">hi", _UNSUPPORTED_VERSION, 0)
        if key == _API_VERSIONS:
            return struct.pack(">hi6h", 0, 2, _API_VERSIONS, 0, 0, _METADATA, 0, 8)
        with self._guard:
            self._left -= 1
            names_itself = self._left >= 0
        # Version 8: throttling, brokers, the name of the cluster, the controller, no topics, no rights.
        host, port = self._server.getsockname()
        itself = struct.pack(">iih", 1, 1, len(host)) + host.encode() + struct.pack(">ih", port, -1)
        brokers, controller = (itself, 1) if names_itself else (struct.pack(">i", 0), -1)
        return struct.pack(">i", 0) + brokers + struct.pack(">hciii", 1, b"c", controller, 0, 0)


@pytest.fixture
def stopping_broker() -> Iterator[str]:
    """The address of a broker that soon knows nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=StoppingBroker(server).accept, daemon=True).start()
        yield "{}:{}".format(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)


def test_an_empty_cluster_is_unreachable_and_ends_no_process(stopping_broker: str) -> None:
    command = [sys.executable, "-c", _ASK, stopping_broker]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unreachable:")
