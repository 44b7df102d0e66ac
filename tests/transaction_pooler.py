"""A pooler in front of PostgreSQL that lends a session for each transaction, as PgBouncer does in transaction mode.

A client talks to the pooler; each transaction, or statement outside of one, goes to any free session of the server. So
session settings and session locks of one client stay behind for the next one, a second statement may find another
session, and notifications are lost. Prepared statements are not tracked, as in PgBouncer before 1.21.

It reads the protocol message by message: a byte for the kind, four for the length, the rest. A request ends with Query
(Q) or Sync (S), its answer with ReadyForQuery (Z), which says whether a transaction is open. Sessions are lent in turn,
so that a client cannot get its last one again by chance.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import URL, make_url

HOST = "127.0.0.1"
PROTOCOL_3 = 196_608
HEAD = 5
_OWN_PID = 1
"""Clients are told a process id of the pooler, for their cancel requests."""


class TransactionPooler:
    """Forwards the transactions of all its clients to a few sessions."""

    def __init__(self, url: str, sessions: int = 3) -> None:
        self._target = make_url(url)
        self._free: queue.Queue[socket.socket] = queue.Queue()
        self._greeting = b""
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        for _ in range(sessions):
            self._free.put(self._log_in())
        self._listener = socket.create_server((HOST, 0))
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The URL of the database through this pooler."""
        port = self._listener.getsockname()[1]
        plain: URL = self._target.set(host=HOST, port=port).update_query_dict({"sslmode": "disable"})
        return plain.update_query_dict({"gssencmode": "disable"}).render_as_string(hide_password=False)

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _log_in(self) -> socket.socket:
        """A session of the server; what it says of itself is what clients are told."""
        session = socket.create_connection((self._target.host or HOST, self._target.port or 5432))
        self._sockets.append(session)
        words = ["user", self._target.username or "postgres", "database", self._target.database or "", ""]
        body = struct.pack("!i", PROTOCOL_3) + b"\0".join(word.encode() for word in words) + b"\0"
        session.sendall(struct.pack("!i", len(body) + 4) + body)
        reported = b""
        while (message := _read(session))[:1] != b"Z":
            reported += message if message[:1] == b"S" else b""
        self._greeting = reported
        return session

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self._start(self._serve, client)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="pooler")
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        session: socket.socket | None = None
        with suppress(OSError):
            self._greet(client)
            while (message := _read(client))[:1] != b"X":
                session = session or self._free.get(timeout=30)
                session.sendall(message)
                if message[:1] in b"QS" and _answer(session, client) == b"I":
                    self._free.put(session)
                    session = None
        if session is not None:  # the client left in mid-transaction
            with suppress(OSError):
                session.sendall(b"Q" + struct.pack("!i", 13) + b"ROLLBACK\0")
                _answer(session, None)
                self._free.put(session)
        client.close()

    def _greet(self, client: socket.socket) -> None:
        length, code = struct.unpack("!ii", _exactly(client, 8))
        while code != PROTOCOL_3 and length == 8:  # encryption is refused
            client.sendall(b"N")
            length, code = struct.unpack("!ii", _exactly(client, 8))
        _exactly(client, length - 8)
        key = b"K" + struct.pack("!iii", 12, _OWN_PID, 0)
        client.sendall(b"R" + struct.pack("!ii", 8, 0) + self._greeting + key + b"Z" + struct.pack("!i", 5) + b"I")


def _answer(session: socket.socket, client: socket.socket | None) -> bytes:
    """Passes an answer on, and returns the state of the transaction after it; notifications go nowhere.

    It is read to its end even if the client is gone: the session's next client would take the rest for its own answer.
    """
    while True:
        message = _read(session)
        if client is not None and message[:1] != b"A":
            with suppress(OSError):
                client.sendall(message)
        if message[:1] == b"Z":
            return message[HEAD:]


def _read(source: socket.socket) -> bytes:
    head = _exactly(source, HEAD)
    return head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        chunk = source.recv(count - len(found))
        if not chunk:
            raise OSError("closed")
        found += chunk
    return found
