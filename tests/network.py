"""A hostile network in front of real servers: TCP proxies that hold, cut, silence or slow down what passes them.

`Proxy` knows bytes. It does to a connection what TCP allows and nothing else: bytes arrive late, or the connection
ends, or one of its directions falls silent for good; none are reordered, repeated or left out.

| proxy             | reads                               | acts on                                                    |
|-------------------|-------------------------------------|------------------------------------------------------------|
| `Proxy`           | nothing                             | the link: slow, silent in one direction, ended; its target |
| `PostgresNetwork` | requests and answers, by message    | a statement before the server has it, or after its commit  |
| `KafkaNetwork`    | requests of transactional producers | any of them, above all EndTxn: held back, delivered later  |

Clients must connect without encryption.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum, IntEnum, auto
from types import TracebackType
from typing import NamedTuple, Self

from sqlalchemy.engine import make_url

from inorder.embedded import Kafka
from inorder.embedded.server import HOST, free_port
from tests.injections import INJECTIONS

CHUNK = 65_536
PIECE = 16 * 1024
"""What a slow link carries at once."""
FAST = float("inf")


class Direction(Enum):
    REQUESTS = auto()
    ANSWERS = auto()


class Proxy:
    """An address of its own from which each connection leads to the server, until the block ends."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        """Where new connections lead; those that exist stay where they are."""
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._lock = threading.RLock()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.bytes_a_second = FAST
        """How fast requests pass, all connections together; answers pass at once."""
        self._pace = threading.Lock()
        self._silenced: set[Direction] = set()
        self.unheard = 0
        """Bytes that were said into a silent direction."""
        self._is_open = True
        self.turned_away = 0
        """Connections that came while it was shut."""

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.bytes_a_second = FAST
        end(self._listener)
        self.end_connections()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def end_connections(self) -> None:
        """Ends all connections that exist."""
        with self._lock:
            end(*self._connections)
            self._connections.clear()

    def start(self, work: Callable[..., None], *arguments: object) -> None:
        """Runs a part of the proxy in a thread that the end of the block waits for."""
        thread = threading.Thread(target=work, args=arguments, name="proxy")
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def shut(self) -> None:
        """Ends all connections and refuses new ones."""
        with self._lock:
            INJECTIONS.note("network cut, new connections refused")
            self._is_open = False
            self.end_connections()

    def open(self) -> None:
        """Accepts connections again."""
        with self._lock:
            self._is_open = True

    def silence(self, *directions: Direction) -> None:
        """From now on nothing passes in these directions, and in no other: a cut of one way.

        A connection that lost something this way stays silent in that direction as long as it lives, because TCP
        delivers nothing behind a hole.
        """
        with self._lock:
            self._silenced = set(directions)
        if directions:
            INJECTIONS.note("network cut in one direction")

    def pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the client says, until one side ends."""
        self._pass_on(client, server, Direction.REQUESTS)

    def pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the server says, until one side ends."""
        self._pass_on(server, client, Direction.ANSWERS)

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        with suppress(OSError):
            for chunk in self.chunks(source, direction):
                target.sendall(chunk)
        end(source, target)

    def chunks(self, source: socket.socket, direction: Direction) -> Iterator[bytes]:
        """What one side says, until it ends; what is said into a silent direction is never heard."""
        is_silent = False
        while chunk := source.recv(CHUNK if self.bytes_a_second == FAST else PIECE):
            is_silent = is_silent or direction in self._silenced
            if is_silent:
                self.unheard += len(chunk)
                continue
            if direction is Direction.REQUESTS:
                # Before more is read: a slow link makes its sender wait, and keeps nothing for later.
                with self._pace:  # one network for all connections
                    time.sleep(len(chunk) / self.bytes_a_second)
            yield chunk

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._let_in(client)

    def _let_in(self, client: socket.socket) -> None:
        with self._lock:
            if not self._is_open:
                self.turned_away += 1
                client.close()
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:  # not there yet, or no longer
                client.close()
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections |= {client, server}
        self.start(self.pass_requests, client, server)
        self.start(self.pass_answers, client, server)


def end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):  # already disconnected
            each.shutdown(socket.SHUT_RDWR)
        each.close()


# PostgreSQL. A message is a byte for the kind, four for the length, and the rest; a client's first one has no kind.

HEAD = 5
_VERB = re.compile(rb"\s*(\w+)")


class PostgresNetwork(Proxy):
    """Forwards everything, until it is set to cut a connection at a statement."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        super().__init__((self._url.host or HOST, self._url.port or 5432))
        self._cut_before = b""
        self._cut_after = b""
        self.cuts = 0

    @property
    def url(self) -> str:
        """The URL of the database through this network."""
        off = {"sslmode": "disable", "gssencmode": "disable"}
        plain = self._url.set(host=HOST, port=self.port).update_query_dict(off)
        return plain.render_as_string(hide_password=False)

    def cut_after(self, command: str) -> None:
        """Drops the answer to the next commit of this command that changed a row: the client cannot know of it.

        A statement has been committed when `CommandComplete` (C, with its tag, as `DELETE 20`) is followed by
        `ReadyForQuery` (Z) outside of a transaction block.
        """
        with self._lock:
            self._cut_after = command.encode()

    def cut_before(self, command: str) -> None:
        """Ends the connection instead of sending the next statement that begins with this word to the server."""
        with self._lock:
            self._cut_before = command.encode()

    def has_cut(self, before: int) -> bool:
        """Whether there were more cuts than the given number."""
        return self.cuts > before

    def pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        prepared: dict[bytes, bytes] = {}
        with suppress(OSError):
            for message in _messages(self.chunks(client, Direction.REQUESTS), first_is_untyped=True):
                if self._is_before(_statement(message, prepared)):
                    break
                server.sendall(message)
        end(client, server)

    def pass_answers(self, client: socket.socket, server: socket.socket) -> None:
        tag = b""
        with suppress(OSError):
            for message in _messages(self.chunks(server, Direction.ANSWERS)):
                if message[:1] == b"C":
                    tag = message[HEAD:-1]
                elif message[:1] == b"Z" and message[HEAD:] == b"I":
                    if self._is_after(tag):
                        break
                    tag = b""
                client.sendall(message)
        end(client, server)

    def _is_before(self, statement: bytes) -> bool:
        verb = _VERB.match(statement)
        with self._lock:
            if not self._cut_before or verb is None or verb[1].upper() != self._cut_before:
                return False
            INJECTIONS.note(f"connection cut before {self._cut_before.decode()}")
            self._cut_before = b""
            self.cuts += 1
            return True

    def _is_after(self, tag: bytes) -> bool:
        command, _, count = tag.partition(b" ")
        with self._lock:
            if not self._cut_after or command != self._cut_after or count == b"0":
                return False
            INJECTIONS.note(f"answer lost after {self._cut_after.decode()}")
            self._cut_after = b""
            self.cuts += 1
            return True


def _messages(chunks: Iterator[bytes], *, first_is_untyped: bool = False) -> Iterator[bytes]:
    """The messages of one side, one by one."""
    waiting, kind = b"", 0 if first_is_untyped else 1
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= kind + 4:
            length = kind + int.from_bytes(waiting[kind : kind + 4])
            if len(waiting) < length:
                break
            yield waiting[:length]
            waiting, kind = waiting[length:], 1


def _statement(message: bytes, prepared: dict[bytes, bytes]) -> bytes:
    """The SQL that a client's message executes, if it does; notes what it prepares."""
    kind, body = message[:1], message[HEAD:]
    if kind == b"Q":
        return body
    if kind == b"P":
        name, _, rest = body.partition(b"\0")
        prepared[name] = rest.partition(b"\0")[0]
    if kind == b"B":  # of a portal and a statement
        return prepared.get(body.split(b"\0", 2)[1], b"")
    return b""


# Kafka. A request is four bytes with its length, its kind, version and correlation id, the client's id, and, of the
# requests that count here, the transactional id.

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


class KafkaNetwork(Proxy):
    """Holds a request back, breaks the client's connection, and delivers the request later.

    This is what a paused broker or a slow network does: the client times out or sees its connection break, sends the
    same request again on a new connection, gets its answer and continues; only then the broker receives the first one.
    A held request is released a moment after its client has begun the next transaction (its next AddPartitionsToTxn
    went through), or after a time that has nothing to do with what the client does.
    """

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
            for frame in _frames(self.chunks(client, Direction.REQUESTS)):
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
            for chunk in self.chunks(server, Direction.ANSWERS):
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
            INJECTIONS.note(f"request held back: {request.api.name}")
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
    """A broker that its clients reach through a network; `bootstrap` is the way around it."""

    def __init__(self, folder: object, network: Proxy) -> None:
        super().__init__(str(folder))
        self._network = network

    def more_settings(self, controller_port: int) -> str:
        """A second listener, which sends clients through the network; the broker uses the first one for itself."""
        inner = f"PLAINTEXT://{HOST}:{self.port}"
        lines = {
            "listeners": f"CLIENTS://{HOST}:{self._network.target[1]},{inner},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"CLIENTS://{self._network.address},{inner}",
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


def _frames(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The client's requests with their lengths, one by one."""
    waiting = b""
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= LENGTH and len(waiting) >= (end := LENGTH + int.from_bytes(waiting[:LENGTH])):
            yield waiting[:end]
            waiting = waiting[end:]
