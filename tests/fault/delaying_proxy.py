"""A proxy in front of Kafka that holds a request back, breaks the client's connection, and delivers the request later.

This is what a paused broker or a slow network does: the client times out or sees its connection break, sends the same
request again on a new connection, gets its answer and continues; only then the broker receives the first request.

A held request is released a moment after its client has begun the next transaction (its next AddPartitionsToTxn went
through), or after a time that has nothing to do with what the client does. The proxy reads the client's side of the
protocol: four bytes with the length of a request, its kind, version and correlation id, the client's id, and the
transactional id, with which the requests that count here begin. Clients must connect without encryption.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from inorder.embedded import Kafka
from inorder.embedded.server import HOST, free_port
from tests.proxy import CHUNK, Proxy, end

LENGTH = 4
LONGEST_SECONDS = 3.0
"""How long a request is held that does not wait for the next transaction."""
MOMENTS = (0.0, 0.002, 0.01, 0.05, 0.2)
"""How long after the begin of the next transaction a request is released."""


class Api(IntEnum):
    """Requests that name a transactional id, by their number in the protocol."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


FLEXIBLE_FROM = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS: 3,
    Api.ADD_OFFSETS: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
"""The version from which on a request has compact strings and a header with tags."""


class Request(NamedTuple):
    """A request of a transactional producer."""

    api: Api
    id: str
    is_abort: bool = False


class Held(NamedTuple):
    """A request that the broker does not have yet, and the connection that it came through."""

    frame: bytes
    server: socket.socket
    awaits_begin: bool


class DelayingProxy(Proxy):
    """Forwards everything, until it is set to hold requests back."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__((HOST, free_port()))
        self.counts: Counter[str] = Counter()
        """Requests that were held, by their kind; `repeated` counts every EndTxn that was sent again."""
        self._chance = random.Random(seed)
        self._share: dict[Api, float] = {}
        self.waits: list[float] = []
        """How long clients waited before they repeated an EndTxn, in seconds."""
        self._at_end: tuple[Callable[[], None], threading.Event] | None = None
        self._held: dict[str, Held] = {}
        self._ended: dict[str, float] = {}

    def hold(self, **share: float) -> None:
        """Holds this share of requests back, by the names of `Api`; no others from now on."""
        with self._lock:
            self._share = {Api[name.upper()]: value for name, value in share.items()}

    def at_next_end(self, action: Callable[[], None]) -> threading.Event:
        """Calls the action right before the broker gets the next EndTxn; returns what is set then."""
        done = threading.Event()
        with self._lock:
            self._at_end = action, done
        return done

    def total(self) -> int:
        """How many requests were held."""
        return sum(count for name, count in self.counts.items() if name != "repeated")

    def release_all(self) -> None:
        """Delivers what is held, and holds nothing more."""
        self.hold()
        for id in list(self._held):
            self._release(id)

    def pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            for frame in _frames(client):
                request = parse(frame)
                if request is not None and self._keeps(request, frame, server):
                    end(client)
                    return  # the broker's side stays open for the request
                if request is not None and request.api is Api.END_TXN:
                    self._act_at_end()
                server.sendall(frame)
                if request is not None and request.api is Api.ADD_PARTITIONS:
                    self._note_begin(request.id)
        end(client, server)

    def pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(CHUNK):
                with suppress(OSError):  # cut: what the broker answers then goes nowhere
                    client.sendall(chunk)
        end(client, server)

    def _act_at_end(self) -> None:
        with self._lock:
            wanted, self._at_end = self._at_end, None
        if wanted is not None:
            action, done = wanted
            action()
            done.set()

    def _keeps(self, request: Request, frame: bytes, server: socket.socket) -> bool:
        """Decides whether to hold a request back; at most one of each transactional id is held."""
        with self._lock:
            self._note_end(request)
            if request.id in self._held or self._chance.random() >= self._share.get(request.api, 0.0):
                return False
            awaits_begin = self._chance.random() < 0.7
            self._held[request.id] = Held(frame, server, awaits_begin)
            self.counts["ABORT" if request.is_abort else request.api.name] += 1
            if not awaits_begin:
                self._release_after(self._chance.uniform(0, LONGEST_SECONDS), request.id)
            return True

    def _note_end(self, request: Request) -> None:
        if request.api is Api.ADD_PARTITIONS:
            self._ended.pop(request.id, None)
        elif request.api is Api.END_TXN:
            now = time.monotonic()
            if request.id in self._ended:
                self.counts["repeated"] += 1
                self.waits.append(now - self._ended[request.id])
            self._ended[request.id] = now

    def _note_begin(self, id: str) -> None:
        with self._lock:
            if id in self._held and self._held[id].awaits_begin:
                self._release_after(self._chance.choice(MOMENTS), id)

    def _release_after(self, seconds: float, id: str) -> None:
        timer = threading.Timer(seconds, self._release, [id])
        self._threads.append(timer)
        timer.start()

    def _release(self, id: str) -> None:
        with self._lock:
            held = self._held.pop(id, None)
        if held is not None:
            with suppress(OSError):  # the broker has closed the connection: it was idle for too long
                held.server.sendall(held.frame)


class ProxiedKafka(Kafka):
    """A broker that its clients reach through a proxy; `bootstrap` is the way around it."""

    def __init__(self, folder: object, proxy: DelayingProxy) -> None:
        super().__init__(str(folder))
        self._proxy = proxy

    def more_settings(self, controller_port: int) -> str:
        """A second listener, which sends clients to the proxy; the broker uses the first one for itself."""
        inner = f"PLAINTEXT://{HOST}:{self.port}"
        lines = {
            "listeners": f"CLIENTS://{HOST}:{self._proxy.target[1]},{inner},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"CLIENTS://{self._proxy.address},{inner}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def parse(frame: bytes) -> Request | None:
    """The request of a frame, if it is one of a transactional producer."""
    number, version, _, name = struct.unpack_from(">hhih", frame, LENGTH)
    if number not in frozenset(Api):
        return None
    api, at = Api(number), LENGTH + 10 + max(name, 0)
    if version >= FLEXIBLE_FROM[api]:
        size, at = frame[at + 1] - 1, at + 2  # no tags; ids are shorter than 127 bytes
    else:
        (size,), at = struct.unpack_from(">h", frame, at), at + 2
    if size < 0:
        return None
    id = frame[at : at + size].decode()
    # EndTxn ends with the producer's id, its epoch and whether it commits.
    return Request(api, id, is_abort=api is Api.END_TXN and not frame[at + size + 10])


def _frames(client: socket.socket) -> Iterator[bytes]:
    """The client's requests with their lengths, one by one."""
    waiting = b""
    while chunk := client.recv(CHUNK):
        waiting += chunk
        while len(waiting) >= LENGTH and len(waiting) >= (end := LENGTH + int.from_bytes(waiting[:LENGTH])):
            yield waiting[:end]
            waiting = waiting[end:]
