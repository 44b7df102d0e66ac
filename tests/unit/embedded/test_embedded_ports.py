"""Free ports are free, and a busy one is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.embedded.server import HOST, accepts_connections, ask, free_port, is_free, need_port
from inorder.model.errors import UnreachableError


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port()
    with socket.create_server((HOST, port)):
        assert accepts_connections(port)
    assert is_free(port)


def test_free_ports_are_never_those_of_outgoing_connections() -> None:
    assert all(15_000 <= free_port() < 32_000 for _ in range(20))


def test_a_busy_port_is_named_with_exit_code_4(busy_port: int) -> None:
    with pytest.raises(UnreachableError, match=f"Apache Kafka: port {busy_port} is already in use") as caught:
        need_port(busy_port, "Apache Kafka")
    assert caught.value.exit_code == 4


def test_a_wanted_free_port_is_given() -> None:
    port = free_port()
    assert need_port(port, "Apache Kafka") == port


def test_nothing_answers_on_a_free_port() -> None:
    assert not accepts_connections(free_port())


def test_a_server_that_does_not_listen_says_nothing() -> None:
    assert ask(free_port(), b"PING\r\n") == b""


def test_the_first_bytes_of_an_answer_are_returned() -> None:
    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, listener.getsockname()[1], b"PING")
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4) == b"PING"
            connection.sendall(b"+PONG")
        assert answer.result(10) == b"+PONG"
