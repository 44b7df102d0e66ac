"""The endpoint answers HTTP and plain TCP, reports what is wrong, and a silent client delays no other."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse

import pytest

from inorder.model.errors import AuthenticationError, ConfigurationError, UnreachableError
from inorder.observe import endpoint as endpoint_module
from inorder.observe.endpoint import MOST_REQUESTS, Endpoint, PeriodicReader, ServerChecks
from tests.conftest import Eventually


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


def test_liveness_does_not_depend_on_the_work_and_readiness_says_why_not(endpoint: Endpoint, state: State) -> None:
    assert ask(endpoint, "/readyz")[1] == b"work: ok\n"
    state.trouble = "Kafka cannot be reached:\nno broker."
    response, body = ask(endpoint, "/readyz")
    assert (response.status, body) == (503, b"work: Kafka cannot be reached: no broker.\n")
    response, body = ask(endpoint, "/livez")
    assert (response.status, body) == (200, b"ok")


def test_readiness_has_a_line_for_each_server() -> None:
    checks = {"database": "", "kafka": "No broker answers."}
    with Endpoint(("127.0.0.1", 0), str, bytes, lambda: checks) as endpoint:
        response, body = ask(endpoint, "/readyz")
        assert (response.status, body) == (503, b"database: ok\nkafka: No broker answers.\nwork: ok\n")
        assert ask(endpoint, "/health")[0].status == 200, "as before"
        checks["kafka"] = ""
        assert ask(endpoint, "/readyz")[0].status == 200


def test_a_server_that_hangs_keeps_no_other_from_being_asked(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    are_away, goes_on, hangs = threading.Event(), threading.Event(), threading.Event()

    def database() -> None:
        if are_away.is_set():
            hangs.set()
            assert goes_on.wait(60)

    def kafka() -> None:
        if are_away.is_set():
            raise UnreachableError("No broker answers.")

    checks = ServerChecks({"database": database, "kafka": kafka}, seconds=0.001)
    assert checks.troubles() == {"database": "It was not asked yet.", "kafka": "It was not asked yet."}
    checks.start()
    try:
        eventually(lambda: not any(checks.troubles().values()))
        are_away.set()
        assert hangs.wait(60)
        eventually(lambda: checks.troubles()["kafka"] == "No broker answers.")
        assert checks.troubles()["database"] == "", "a check may take a while"
        monkeypatch.setattr(endpoint_module, "STALE_SECONDS", 0.0)
        eventually(lambda: checks.troubles()["database"].startswith("It has not answered for "))
    finally:
        goes_on.set()
        checks.stop()


def test_liveness_asks_nothing() -> None:
    def hangs() -> str:
        raise AssertionError("asked")

    with Endpoint(("127.0.0.1", 0), hangs, bytes, lambda: {"kafka": hangs()}) as endpoint:
        assert ask(endpoint, "/livez")[0].status == 200


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


def test_a_refused_login_is_trouble_until_a_later_reading_succeeds() -> None:
    """An instance that does not lead notices only by this that it could not take over."""
    answers: Iterator[Exception | int] = iter([AuthenticationError("refused"), UnreachableError("down"), 7])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader = PeriodicReader("outbox", ask)
    seen: list[tuple[str, str]] = []
    for _ in range(3):
        reader.read_once()
        seen.append((reader.failure, reader.refusal))
    assert seen == [("refused", "refused"), ("down", ""), ("", "")]


def test_a_failure_that_lasts_is_logged_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    away = [UnreachableError(f"no answer after {number} ms") for number in range(20)]
    answers: Iterator[Exception | int] = iter([*away, UnreachableError("refused"), 7, UnreachableError("refused")])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader = PeriodicReader("outbox", ask)
    with caplog.at_level(logging.INFO, "inorder.health"):
        for _ in range(23):
            reader.read_once()
    fields = [vars(record) for record in caplog.records]
    assert [(one["error"], one["repeated"]) for one in fields] == [
        *((str(away[repeated]), repeated) for repeated in (0, 1, 2, 4, 8, 16)),
        ("refused", 0),
        ("refused", 0),
    ]


def test_a_request_that_trickles_in_is_ended_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 0.2)
    with Endpoint(("127.0.0.1", 0), str) as endpoint, socket.create_connection(endpoint.address, 60) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nX: ")
        client.settimeout(0.05)  # so long for an answer before each further byte
        for _ in range(600):
            with suppress(TimeoutError, ConnectionError):
                client.sendall(b"x")
                if client.recv(100) == b"":
                    break
            if client.fileno() < 0 or _is_closed(client):
                break
        else:
            pytest.fail("The endpoint waited for the rest of the request for ever.")


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_many_idle_connections_do_not_become_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 600)  # none of them ends during the test
    monkeypatch.setattr(endpoint_module._Handler, "timeout", 600)
    with Endpoint(("127.0.0.1", 0), str) as endpoint, ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(endpoint.address, 60)) for _ in range(MOST_REQUESTS + 8)
        ]
        for client in clients[MOST_REQUESTS:]:
            assert _is_closed(client), "it is closed at once"
        names = [thread.name for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(names) <= MOST_REQUESTS
