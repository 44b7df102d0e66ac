"""The connection between the driver and each resident task: progress goes up, partitions and the end come down.

The task connects to the driver over TCP. It sends the token of this launch, its own index and Spark's id of its
attempt, and the driver answers with the partitions that the task is to read, each with the pointer that the driver has
seen committed. From then on the task sends reports, and the driver sends another assignment when partitions move. When
the driver's side of the connection is closed, the task finishes the current slice and ends. That holds whether the
driver requested it, was killed, or lost the network, so a task needs no heartbeat.

Messages carry figures and no data. They are JSON, one message per line. The token is known only to processes that
received the task from Spark.
"""

from __future__ import annotations

import errno
import hmac
import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, Final, Protocol

import orjson

from inorder.engines.placement import Assignment
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.model.partitioning import Place

logger = logging.getLogger("inorder.pipeline")

CONNECT_SECONDS = 10.0
LAST_REPORTS_SECONDS = 1.0
_HELLO_BYTES = 4096
_READ_BYTES = 65_536
_UNANSWERED_MS = 30_000


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the driver listens, and the token that a task must send."""

    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task has done since its last report."""

    outcomes: Sequence[SliceOutcome]
    phases: Mapping[str, float]
    totals: Mapping[str, int] = field(default_factory=dict)
    """What a service task has counted since it began."""
    waits: Sequence[tuple[str, int, str, str]] = ()
    """Partitions that wait: topic, number, and the message and hint of the error."""
    follows: int | None = None
    """The number of the assignment by which the task reads now."""
    ended: Sequence[Place] = ()
    """Partitions that were read to their end, with `once`."""


NO_ASSIGNMENT: Final = Assignment(0, ())


class TaskEvents(Protocol):
    """What happens to the tasks of a launch; called on the threads of their connections."""

    def joined(self, index: int, attempt: int) -> Assignment | None:
        """A task has connected; None if it is not wanted any more. `attempt` is Spark's id of it, -1 if unknown."""

    def expected(self, places: Collection[Place]) -> Mapping[Place, int]:
        """The pointers of these partitions that were seen committed."""

    def reported(self, index: int, report: TaskReport) -> None: ...

    def left(self, index: int) -> None:
        """The connection of a task has ended, and no other has taken its place."""


class DriverConnection:
    """The task's end. Used by one thread."""

    def __init__(self, address: DriverAddress, index: int, attempt: int = -1) -> None:
        """Connects to the driver; raises `UnreachableError` if it does not answer."""
        self.is_open = True
        """False once the driver has requested the end, or is gone."""
        self.assignment = NO_ASSIGNMENT
        """The newest one."""
        self.expected: dict[Place, int] = {}
        """The pointers of its partitions that the driver had seen committed."""
        self._unread = b""
        try:
            self._socket = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
            _detect_lost_peer(self._socket)
            self._send({"token": address.token, "index": index, "attempt": attempt})
            # recv on a socket with a timeout waits for the timeout, even with MSG_DONTWAIT.
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            while self.is_open and self.assignment is NO_ASSIGNMENT:
                self._receive()
        except OSError as error:
            raise UnreachableError(
                f"A task cannot reach its driver at {address.host}:{address.port}: {error}.",
                hint="Let the nodes reach each other, or set spark.driver.host to a name that they all resolve.",
            ) from error

    def check(self) -> bool:
        """Whether the task should continue; never blocks. Takes a new assignment, if there is one."""
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Waits for an assignment or the end; returns whether the task should continue."""
        try:
            if self.is_open and self._poll.poll(seconds * 1000):
                self._receive()
        except OSError:
            self.is_open = False
        return self.is_open

    def _receive(self) -> None:
        received = self._socket.recv(_READ_BYTES)
        self.is_open = bool(received)
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            message = orjson.loads(line)
            places = [(topic, number) for topic, number, _ in message["places"]]
            self.assignment = Assignment(message["number"], tuple(places))
            self.expected = {(topic, number): at for topic, number, at in message["places"] if at is not None}

    def report(self, report: TaskReport) -> None:
        """Sends what was done; if the driver is gone, `check` returns False from then on."""
        try:
            outcomes = [asdict(one) for one in report.outcomes]
            fields = {"phases": dict(report.phases), "totals": dict(report.totals), "waits": list(report.waits)}
            self._send({"outcomes": outcomes, **fields, "follows": report.follows, "ended": list(report.ended)})
        except OSError:
            self.is_open = False

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(orjson.dumps(message) + b"\n")


PORTS: Final = 16
"""Each launch of a job listens, and several jobs may share a driver; Spark tries as many ports of its own."""


def _listen(bind: str, first: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for port in range(first, first + PORTS) if first else (0,):
        try:
            return socket.create_server((bind, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise ConfigurationError(
        f"All ports from {first} to {first + PORTS - 1} are in use on {bind}.",
        hint="Set spark.inorder.driver.port to the first of 16 free ports.",
    )


class DriverServer:
    """The driver's end of all connections of one launch."""

    def __init__(self, host: str, bind: str, events: TaskEvents, port: int = 0) -> None:
        """`port` is the first of `PORTS` to try, for firewalls; 0 takes any free one."""
        self._events = events
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._readers: set[threading.Thread] = set()
        self._is_stopping = False
        self._listener = _listen(bind, port)
        self.address = DriverAddress(host, self._listener.getsockname()[1], secrets.token_hex(16))
        self._thread = threading.Thread(target=self._accept, name="resident-server", daemon=True)
        self._thread.start()

    def assign(self, index: int, assignment: Assignment) -> None:
        """Sends an assignment to a task, if it is still there."""
        with self._lock:
            if not self._is_stopping and (connection := self._connections.get(index)) is not None:
                with suppress(OSError):
                    self._send(connection, assignment)

    def end(self, index: int) -> None:
        """Makes a task end by closing the sending side; its last reports are still read."""
        with self._lock:
            if (connection := self._connections.get(index)) is not None:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)

    def request_stop(self) -> None:
        """Makes all tasks end by closing the sending side; their last reports are still read."""
        with self._lock:
            self._is_stopping = True
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes all connections, after the last reports of tasks that have ended; waits for no other task."""
        self.request_stop()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        deadline = time.monotonic() + LAST_REPORTS_SECONDS
        for thread in list(self._readers):
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            thread = threading.Thread(target=self._serve, args=(connection,), name="resident-connection", daemon=True)
            self._readers = {one for one in self._readers if one.is_alive()} | {thread}
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        index = None
        try:
            with connection, connection.makefile("rb") as stream:
                connection.settimeout(CONNECT_SECONDS)
                index = self._welcome(connection, stream)
                connection.settimeout(None)
                while index is not None and (line := stream.readline()):
                    self._events.reported(index, _report_of(orjson.loads(line)))
        except (OSError, orjson.JSONDecodeError) as error:
            logger.debug("pipeline.task_connection_lost", extra={"task": index, "error": str(error)})
        finally:
            with self._lock:
                if index is not None and self._connections.get(index) is connection:
                    del self._connections[index]
                    self._events.left(index)

    def _welcome(self, connection: socket.socket, stream: BinaryIO) -> int | None:
        token, index, attempt = _parse_hello(stream.readline(_HELLO_BYTES))
        if not hmac.compare_digest(token.encode(), self.address.token.encode()):
            logger.warning("pipeline.connection_refused", extra={"reason": "authentication failed: wrong token"})
            return None
        with self._lock:
            if self._is_stopping or (assignment := self._events.joined(index, attempt)) is None:
                return None
            before, self._connections[index] = self._connections.get(index), connection
            self._send(connection, assignment)
        if before is not None:  # Spark has restarted the task; if the old one is still alive, it ends
            with suppress(OSError):
                before.shutdown(socket.SHUT_WR)
        return index

    def _send(self, connection: socket.socket, assignment: Assignment) -> None:
        expected = self._events.expected(assignment.places)
        places = [(*place, expected.get(place)) for place in assignment.places]
        connection.sendall(orjson.dumps({"number": assignment.number, "places": places}) + b"\n")


def _parse_hello(line: bytes) -> tuple[str, int, int]:
    """Token, index and attempt; a token that matches nothing if the line is not a greeting."""
    try:
        match orjson.loads(line):
            case {"token": str(token), "index": int(index), "attempt": int(attempt)}:
                return token, index, attempt
    except orjson.JSONDecodeError:
        pass
    return "", -1, -1


def _report_of(message: Mapping[str, Any]) -> TaskReport:
    reported = [SliceOutcome(**fields) for fields in message["outcomes"]]
    waits, ended = (tuple(map(tuple, message[name])) for name in ("waits", "ended"))
    return TaskReport(reported, message["phases"], message["totals"], waits, message["follows"], ended)


def _detect_lost_peer(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_USER_TIMEOUT": _UNANSWERED_MS}.items():
        if hasattr(socket, name):  # systems without these options notice later
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
