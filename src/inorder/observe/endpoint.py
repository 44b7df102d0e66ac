"""The endpoint of a running relay or job: `/livez`, `/readyz`, `/health`, `/metrics`, and a plain `Pong`.

`/livez` says that the process answers and looks at nothing else: a probe that failed with the database would restart
every process during an outage of the database. `/health` says whether it works. `/readyz` says that too, and
whether each server answers (`ServerChecks`): a relay with nothing to send, or one that waits for the lease, would not
notice that a server is away.

PollingOutboxPublisher answers every line on a TCP port with `Pong`, and its users' checks rely on that. So an empty
line is answered here too, on the HTTP port: with `Pong` while the relay works, and by closing the connection while it
does not.

Requests are answered from memory. `PeriodicReader` runs queries that take time on its own thread and keeps the last
result with its age.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from inorder.model.errors import (
    AuthenticationError,
    ConfigurationError,
    InorderError,
    is_same_failure,
    is_worth_logging,
)
from inorder.observe.metrics import CONTENT_TYPE

log = logging.getLogger("inorder.health")

PONG = b"Pong"
_TEXT = "text/plain; charset=utf-8"
REQUEST_SECONDS = 5.0
"""How long a whole request may take, from the connection to the end of the answer."""
MOST_REQUESTS = 32
"""Requests at a time, each with a thread; a further connection is closed at once."""
_STOP_LOOK_SECONDS = 0.1


class Endpoint:
    """Listens from `start` until `stop`; `trouble` returns what is wrong, or "". No callable may block."""

    def __init__(
        self,
        address: tuple[str, int],
        trouble: Callable[[], str],
        metrics: Callable[[], bytes] = bytes,
        checks: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`checks` returns what is wrong with each server, by its name."""
        self._address = address
        self._answers = _Answers(trouble, metrics, checks)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the actual port where 0 was requested."""
        return (self._address[0], self._server.server_address[1]) if self._server else self._address

    def start(self) -> None:
        """Starts listening; raises `ConfigurationError` where the address is not available."""
        try:
            self._server = _Server(self._address, self._answers)
        except OSError as error:
            host, port = self._address
            raise ConfigurationError(
                f"health.listen = {host}:{port}: cannot listen on this address: {error}.",
                hint="Choose another port, or stop the process that uses it.",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_LOOK_SECONDS,), name="inorder-health", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops listening; may be called twice."""
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
    def __init__(
        self, trouble: Callable[[], str], metrics: Callable[[], bytes], checks: Callable[[], Mapping[str, str]]
    ) -> None:
        self.trouble = trouble
        self.metrics = metrics
        self.checks = checks

    def __call__(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        match path.partition("?")[0]:
            case "/livez":
                return HTTPStatus.OK, _TEXT, b"ok"
            case "/health":
                trouble = self.trouble()
                status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
                return status, _TEXT, trouble.encode() or PONG
            case "/readyz":
                return _ready({**self.checks(), "work": self.trouble()})
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, self.metrics()
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"There are /livez, /readyz, /health and /metrics."


def _ready(checks: Mapping[str, str]) -> tuple[HTTPStatus, str, bytes]:
    ready, body = readiness(checks)
    return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, body.encode()


def readiness(checks: Mapping[str, str]) -> tuple[bool, str]:
    """Whether every check passes, and a line for each: what is wrong by the name of the check, or "".

    >>> readiness({"database": "", "kafka": "No broker answers."})
    (False, 'database: ok\\nkafka: No broker answers.\\n')
    """
    lines = [f"{name}: {' '.join(trouble.split()) or 'ok'}\n" for name, trouble in checks.items()]
    return not any(checks.values()), "".join(lines)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that hangs must not delay the stop of the relay.
    block_on_close = False

    def __init__(self, address: tuple[str, int], answers: _Answers) -> None:
        self.answers = answers
        self._ends: dict[socket.socket, float] = {}
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._ends) >= MOST_REQUESTS:
            log.debug("health.too_many_requests")
            self.shutdown_request(request)
            return
        self._ends[request] = time.monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._ends.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends requests that take too long. A time limit for each read alone lets a client send a byte now and then."""
        now = time.monotonic()
        for request, end in list(self._ends.items()):
            if end < now:
                self._ends.pop(request, None)
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's signature
        log.debug("health.request_failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "inorder"
    sys_version = ""
    timeout = REQUEST_SECONDS
    raw_requestline: bytes

    def parse_request(self) -> bool:
        """Whether it is an HTTP request; an empty line is answered here."""
        if self.raw_requestline.strip():
            return super().parse_request()
        self.close_connection = True
        if not self.server.answers.trouble():
            self.wfile.write(PONG + b"\n")
        return False

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
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
        log.debug("health.request", extra={"request": format % arguments})


T = TypeVar("T")

READ_SECONDS = 10.0
"""Between calls: counting what waits takes time."""


class PeriodicReader(Generic[T]):
    """Calls `ask` periodically on its own thread and keeps the last result; `what` names it in logs and threads."""

    def __init__(self, what: str, ask: Callable[[], T], *, seconds: float = READ_SECONDS) -> None:
        self._what = what
        self._ask = ask
        self._seconds = seconds
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"inorder-{what}-watch", daemon=True)
        self._last: tuple[float, T] | None = None
        self._repeated = 0
        self.failure = ""
        """Why the last call failed; empty where it succeeded."""
        self.refusal = ""
        """The same, where the login was refused."""

    @property
    def last(self) -> tuple[float, T] | None:
        """The age of the last result in seconds, and the result; None before the first."""
        if self._last is None:
            return None
        at, found = self._last
        return time.monotonic() - at, found

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops calling; does not wait for a call under way."""
        self._stop.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Waits for a call under way, at most so long."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def wake(self) -> None:
        """Calls again now."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.read_once()
            if not self._stop.is_set():
                self._wake.wait(self._seconds)

    def read_once(self) -> None:
        """Calls `ask` and keeps its result, or why it failed."""
        try:
            found = self._ask()
        except InorderError as error:
            self._repeated = self._repeated + 1 if is_same_failure(self.failure, error.message) else 0
            self.failure = error.message
            self.refusal = error.message if isinstance(error, AuthenticationError) else ""
            if is_worth_logging(self._repeated):
                fields = {"what": self._what, "error": str(error), "repeated": self._repeated}
                log.info("health.read_failed", extra=fields)
        else:
            self._last, self.failure, self.refusal = (time.monotonic(), found), "", ""


CHECK_SECONDS = 5.0
"""Between the checks of a server."""
_END_SECONDS = 1.0
STALE_SECONDS = 30.0
"""So long after the last answer, a check that is still under way counts as failed."""


class ServerChecks:
    """Whether each server answers, asked periodically on a thread for each: one that hangs delays no other."""

    def __init__(self, checks: Mapping[str, Callable[[], object]], *, seconds: float = CHECK_SECONDS) -> None:
        """A check returns if its server answers, and raises `InorderError` if not."""
        self._readers = {name: PeriodicReader(name, check, seconds=seconds) for name, check in checks.items()}

    def start(self) -> None:
        for reader in self._readers.values():
            reader.start()

    def stop(self) -> None:
        """Stops asking; waits a moment for checks under way, whose connections may be closed next."""
        for reader in self._readers.values():
            reader.stop()
        deadline = time.monotonic() + _END_SECONDS
        for reader in self._readers.values():
            reader.join(max(0.0, deadline - time.monotonic()))

    def troubles(self) -> dict[str, str]:
        """What is wrong with each server; empty text where it answers."""
        return {name: _trouble_of(reader) for name, reader in self._readers.items()}


def _trouble_of(reader: PeriodicReader[object]) -> str:
    if reader.failure:
        return reader.failure
    if (last := reader.last) is None:
        return "It was not asked yet."
    age, _ = last
    return f"It has not answered for {age:.0f} s." if age > STALE_SECONDS else ""
