"""The line between the driver and each resident task: progress goes up, the wish to stop comes down.

The task calls the driver, over TCP. It says the token of this crew and the number of its seat; the driver answers
with the pointers it has seen committed. From then on the task sends reports. The driver never says anything more: when
its side of the line is closed, the task finishes the slice in hand and ends. That is so whether the driver wanted it,
was killed, or lost the network; a task needs no other sign of life.

Lines carry figures and no data. They are JSON, a message a line; the token is known to whoever got the task from Spark.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO

import orjson

from inorder.engines.slice_work import SliceOutcome
from inorder.kafka.admin import Place
from inorder.model.errors import UnreachableError

logger = logging.getLogger("inorder.pipeline")

CALL_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0
_HELLO_BYTES = 4096
_UNANSWERED_MS = 30_000


@dataclass(frozen=True, slots=True)
class Address:
    """Where the driver listens, and what a caller must know."""

    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a task has done since its last one."""

    outcomes: Sequence[SliceOutcome]
    phases: Mapping[str, float]
    totals: Mapping[str, int] = field(default_factory=dict)
    """What a task that applies no slices has counted since it began."""


OnReport = Callable[[int, Report], None]


class Line:
    """The task's end. Used by one thread."""

    def __init__(self, address: Address, seat: int) -> None:
        """Calls the driver; raises `UnreachableError` where nobody answers."""
        try:
            self._socket = socket.create_connection((address.host, address.port), CALL_SECONDS)
            _notice_a_lost_peer(self._socket)
            self._send({"token": address.token, "seat": seat})
            with self._socket.makefile("rb") as answer:
                said = answer.readline()
            # A recv of a socket with a timeout would wait for it, whatever its flags say.
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        except OSError as error:
            raise UnreachableError(
                f"A task cannot reach its driver at {address.host}:{address.port}: {error}.",
                hint="Let the nodes reach each other, or set spark.driver.host to a name that they all know.",
            ) from error
        self.is_open = bool(said)
        """False once the driver wants the task to end, or is gone."""
        told = orjson.loads(said) if said else {"expected": []}
        self.expected: dict[Place, int] = {(topic, number): pointer for topic, number, pointer in told["expected"]}

    def look(self) -> bool:
        """Whether to go on; waits for nothing."""
        try:
            if self.is_open and self._poll.poll(0):
                self.is_open = bool(self._socket.recv(1))
        except OSError:
            self.is_open = False
        return self.is_open

    def report(self, report: Report) -> None:
        """Sends what was done; a driver that is gone cannot be told, and `look` will say so."""
        try:
            outcomes = [asdict(one) for one in report.outcomes]
            self._send({"outcomes": outcomes, "phases": dict(report.phases), "totals": dict(report.totals)})
        except OSError:
            self.is_open = False

    def close(self) -> None:
        """Ends the line."""
        self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(orjson.dumps(message) + b"\n")


class Switchboard:
    """The driver's end of all lines of one crew."""

    def __init__(self, host: str, bind: str, expected: Callable[[], Mapping[Place, int]], on_report: OnReport) -> None:
        self._expected = expected
        self._on_report = on_report
        self._lock = threading.Lock()
        self._lines: dict[int, socket.socket] = {}
        self._hearing: set[threading.Thread] = set()
        self._is_over = False
        self._listening = socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
        self.address = Address(host, self._listening.getsockname()[1], secrets.token_hex(16))
        self._thread = threading.Thread(target=self._accept, name="resident-switchboard", daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Tells all tasks to end; what they still report is heard."""
        with self._lock:
            self._is_over = True
            for line in self._lines.values():
                with suppress(OSError):
                    line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends all lines, after what tasks that have ended said last; others are not waited for."""
        self.hang_up()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        for thread in list(self._hearing):
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            for line in self._lines.values():
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:
                return  # closed
            thread = threading.Thread(target=self._serve, args=(line,), name="resident-line", daemon=True)
            self._hearing = {one for one in self._hearing if one.is_alive()} | {thread}
            thread.start()

    def _serve(self, line: socket.socket) -> None:
        seat = None
        try:
            with line, line.makefile("rb") as heard:
                line.settimeout(CALL_SECONDS)
                seat = self._welcome(line, heard)
                line.settimeout(None)
                while seat is not None and (said := heard.readline()):
                    self._on_report(seat, _report_of(orjson.loads(said)))
        except (OSError, orjson.JSONDecodeError) as error:
            logger.debug("pipeline.line_lost seat=%s %s", seat, error)
        finally:
            with self._lock:
                if seat is not None and self._lines.get(seat) is line:
                    del self._lines[seat]

    def _welcome(self, line: socket.socket, heard: BinaryIO) -> int | None:
        token, seat = _hello_of(heard.readline(_HELLO_BYTES))
        if not hmac.compare_digest(token.encode(), self.address.token.encode()):
            logger.warning("pipeline.stranger A caller without the token of this run was turned away.")
            return None
        with self._lock:
            if self._is_over:
                return None
            before, self._lines[seat] = self._lines.get(seat), line
            expected = [[topic, number, pointer] for (topic, number), pointer in self._expected().items()]
            line.sendall(orjson.dumps({"expected": expected}) + b"\n")
        if before is not None:  # Spark has begun the task anew; whatever is left of the old one ends
            with suppress(OSError):
                before.shutdown(socket.SHUT_WR)
        return seat


def _hello_of(said: bytes) -> tuple[str, int]:
    """Token and seat; nothing that is any use where a stranger says something else."""
    try:
        match orjson.loads(said):
            case {"token": str(token), "seat": int(seat)}:
                return token, seat
    except orjson.JSONDecodeError:
        pass
    return "", -1


def _report_of(said: Mapping[str, Any]) -> Report:
    return Report([SliceOutcome(**fields) for fields in said["outcomes"]], said["phases"], said["totals"])


def _notice_a_lost_peer(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_USER_TIMEOUT": _UNANSWERED_MS}.items():
        if hasattr(socket, name):  # some systems have none of them and notice later
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
