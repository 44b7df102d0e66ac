"""Where a running relay or job tells how it is: `/health`, `/metrics`, and a plain `Pong`.

PollingOutboxPublisher answers every line on a TCP port with `Pong`, and checks of its users rely on that. So an empty
line is answered here too, on the port that speaks HTTP: with `Pong` while the relay works, and by closing the
connection without a word while it does not.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from inorder.model.errors import ConfigurationError, InorderError
from inorder.observe.metrics import CONTENT_TYPE

log = logging.getLogger("inorder.health")

PONG = b"Pong"
PATIENCE_SECONDS = 5.0
"""How long a caller may take to say what it wants."""
_STOP_LOOK_SECONDS = 0.1


class Endpoint:
    """Listens from `start` until `stop`; `trouble` says what is wrong, or nothing, and both must answer from memory."""

    def __init__(
        self, address: tuple[str, int], trouble: Callable[[], str], metrics: Callable[[], bytes] = bytes
    ) -> None:
        self._address = address
        self._answers = _Answers(trouble, metrics)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the port is a real one also where 0 was asked for."""
        return (self._address[0], self._server.server_address[1]) if self._server else self._address

    def start(self) -> None:
        """Begins to listen; an address that cannot be had is a `ConfigurationError`."""
        try:
            self._server = _Server(self._address, self._answers)
        except OSError as error:
            host, port = self._address
            raise ConfigurationError(
                f"health.listen = {host}:{port} cannot be listened on: {error}.",
                hint="Choose another port, or end what listens there.",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_LOOK_SECONDS,), name="inorder-health", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Listens no more; may be called twice."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Answers:
    def __init__(self, trouble: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        self.trouble = trouble
        self.metrics = metrics

    def __call__(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body for a path."""
        match path.partition("?")[0]:
            case "/health":
                trouble = self.trouble()
                status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
                return status, "text/plain; charset=utf-8", trouble.encode() or PONG
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, self.metrics()
            case _:
                return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"There are /health and /metrics."


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A caller that hangs must not hold up the end of the relay.
    block_on_close = False

    def __init__(self, address: tuple[str, int], answers: _Answers) -> None:
        self.answers = answers
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's signature
        log.debug("health.caller_failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "inorder"
    sys_version = ""
    timeout = PATIENCE_SECONDS
    raw_requestline: bytes

    def parse_request(self) -> bool:
        """Whether it is a request of HTTP; an empty line has its answer here."""
        if self.raw_requestline.strip():
            return super().parse_request()
        self.close_connection = True
        if not self.server.answers.trouble():
            self.wfile.write(PONG + b"\n")
        return False

    def do_GET(self) -> None:
        """Answers with a body."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answers without one."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, kind, body = self.server.answers(self.path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base's name
        log.debug("health.asked: " + format, *arguments)  # noqa: G003 - the base has the words


# Asks somebody now and then, on a thread of its own: whoever reads the answer must not wait for it.


T = TypeVar("T")

READ_SECONDS = 10.0
"""Between questions: what waits is counted, which is work."""


class Watch(Generic[T]):
    """Keeps the last answer and its age; `what` names the question in logs and threads."""

    def __init__(self, what: str, ask: Callable[[], T], *, seconds: float = READ_SECONDS) -> None:
        self._what = what
        self._ask = ask
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"inorder-{what}-watch", daemon=True)
        self._last: tuple[float, T] | None = None
        self.failure = ""
        """Why the last question has no answer; empty where it has one."""

    @property
    def last(self) -> tuple[float, T] | None:
        """The last answer after its age in seconds; None before the first."""
        if self._last is None:
            return None
        at, found = self._last
        return time.monotonic() - at, found

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no more; does not wait for an answer that is still to come."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._ask()
            except InorderError as error:
                self.failure = error.message
                log.info("health.%s_not_read: %s", self._what, error)
            else:
                self._last, self.failure = (time.monotonic(), found), ""
            self._stop.wait(self._seconds)
