"""The hostile network of the fault tests does what TCP allows, and nothing else."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from inorder.embedded.server import HOST
from tests.conftest import Eventually
from tests.network import Direction, PostgresNetwork, Proxy

SECONDS = 30


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers what it gets."""
    listener = socket.create_server((HOST, 0))

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):  # cut
            while chunk := client.recv(1000):
                client.sendall(chunk)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def connected(proxy: Proxy) -> closing[socket.socket]:
    return closing(socket.create_connection((HOST, proxy.port), timeout=SECONDS))


def exchanged(client: socket.socket, content: bytes) -> bytes:
    client.sendall(content)
    return received(client, len(content))


def received(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (chunk := client.recv(count - len(found))):
        found += chunk
    return found


@pytest.mark.parametrize("direction", Direction)
def test_a_connection_that_fell_silent_stays_silent_and_a_new_one_is_whole(
    echo: int, direction: Direction, eventually: Eventually
) -> None:
    with Proxy((HOST, echo)) as proxy, connected(proxy) as old:
        assert exchanged(old, b"before") == b"before"
        proxy.silence(direction)
        old.sendall(b"lost")
        eventually(lambda: proxy.unheard == len(b"lost"))
        proxy.silence()
        with connected(proxy) as new:
            assert exchanged(new, b"after") == b"after"
        old.sendall(b"more")
        eventually(lambda: proxy.unheard == len(b"lostmore"))


def test_a_slow_link_carries_every_byte_in_its_order(echo: int) -> None:
    content = bytes(range(256)) * 400
    with Proxy((HOST, echo)) as proxy, connected(proxy) as client:
        proxy.bytes_a_second = 2e6
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(received, client, len(content))
            client.sendall(content)
            assert answer.result(SECONDS) == content


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


START = struct.pack("!ii", 12, 196_608) + b"user"
PARSE = message(b"P", b"purge\0DELETE FROM outbox\0\0\0")
BIND = message(b"B", b"\0purge\0" + bytes(6))
SELECT = message(b"Q", b"SELECT 1\0")


@pytest.mark.parametrize(
    ("command", "sent", "passed"),
    [
        ("DELETE", [START, SELECT, PARSE, BIND], [START, SELECT, PARSE]),
        ("COMMIT", [START, PARSE, BIND, message(b"Q", b"commit\0")], [START, PARSE, BIND]),
        ("SELECT", [START, SELECT], [START]),
    ],
)
def test_a_connection_is_cut_before_the_statement_that_was_named(
    echo: int, command: str, sent: list[bytes], passed: list[bytes]
) -> None:
    with PostgresNetwork(f"postgresql://{HOST}:{echo}/db") as network, connected(network) as client:
        network.cut_before(command)
        client.sendall(b"".join(sent))
        assert b"".join(passed).startswith(received(client, 1000)), "nothing but what was passed comes back"
    assert network.cuts == 1
