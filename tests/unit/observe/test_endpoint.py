"""The endpoint answers HTTP and plain TCP, reports what is wrong, and a silent client delays no other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse

import pytest

from inorder.model.errors import ConfigurationError
from inorder.observe.endpoint import Endpoint


@dataclass
class State:
    trouble: str = ""


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def endpoint(state: State) -> Iterator[Endpoint]:
    with Endpoint(("127.0.0.1", 0), lambda: state.trouble, lambda: b"some 1\n") as found:
        yield found


def ask(endpoint: Endpoint, path: str, method: str = "GET") -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(*endpoint.address, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def tcp(endpoint: Endpoint, said: bytes) -> bytes:
    with socket.create_connection(endpoint.address, timeout=10) as caller:
        caller.sendall(said)
        answer = b""
        while heard := caller.recv(1000):
            answer += heard
        return answer


def test_health_is_pong_while_the_relay_works(endpoint: Endpoint) -> None:
    response, body = ask(endpoint, "/health")
    assert (response.status, body) == (200, b"Pong")


def test_health_is_503_with_the_reason_while_it_does_not(endpoint: Endpoint, state: State) -> None:
    state.trouble = "Kafka cannot be reached: größer."
    response, body = ask(endpoint, "/health")
    assert (response.status, body.decode()) == (503, state.trouble)
    state.trouble = ""
    assert ask(endpoint, "/health?verbose")[0].status == 200


def test_metrics_are_text_for_prometheus(endpoint: Endpoint) -> None:
    response, body = ask(endpoint, "/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert body == b"some 1\n"


def test_head_has_no_body(endpoint: Endpoint) -> None:
    response, body = ask(endpoint, "/health", "HEAD")
    assert (response.status, body, response.headers["Content-Length"]) == (200, b"", "4")


def test_another_path_is_not_found_and_another_method_not_known(endpoint: Endpoint) -> None:
    assert ask(endpoint, "/")[0].status == 404
    assert ask(endpoint, "/health", "POST")[0].status == 501


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"  \n"])
def test_a_plain_line_is_answered_with_pong(endpoint: Endpoint, line: bytes) -> None:
    assert tcp(endpoint, line) == b"Pong\n"


def test_a_plain_line_has_no_answer_while_the_relay_does_not_work(endpoint: Endpoint, state: State) -> None:
    state.trouble = "away"
    assert tcp(endpoint, b"\n") == b""


def test_nonsense_ends_the_call_and_nothing_else(endpoint: Endpoint) -> None:
    assert b"400" in tcp(endpoint, b"\x16\x03\x01 what is this\r\n\r\n")
    assert ask(endpoint, "/health")[0].status == 200


def test_somebody_who_says_nothing_keeps_nobody_else_waiting(endpoint: Endpoint) -> None:
    with socket.create_connection(endpoint.address, timeout=10):
        assert ask(endpoint, "/health")[0].status == 200


def test_an_address_in_use_is_told_by_its_setting(endpoint: Endpoint) -> None:
    second = Endpoint(endpoint.address, str)
    with pytest.raises(ConfigurationError, match=r"health\.listen = 127\.0\.0\.1:\d+: cannot listen on this address"):
        second.start()
    second.stop()


def test_after_the_end_nobody_listens_and_no_thread_is_left() -> None:
    endpoint = Endpoint(("127.0.0.1", 0), str)
    endpoint.start()
    address = endpoint.address
    endpoint.stop()
    endpoint.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "inorder-health"]


def test_an_address_of_version_six_is_taken() -> None:
    with Endpoint(("::1", 0), str) as endpoint:
        assert ask(endpoint, "/health")[1] == b"Pong"
