"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket

from inorder.model.errors import UnreachableError

HOST = "127.0.0.1"
# Below the range from which Linux and macOS number outgoing connections: a client that keeps knocking while
# its server restarts would otherwise now and then be given that very port, connect to itself and keep the
# server out.
_RANGE = range(15_000, 32_000)


def is_free(port: int) -> bool:
    """True when a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port nobody listens on; random, so that neighbours who choose at the same moment seldom agree."""
    for port in random.sample(_RANGE, 200):
        if is_free(port):
            return port
    raise UnreachableError(f"No free port was found between {_RANGE.start} and {_RANGE.stop} on {HOST}.")


def need_port(port: int, purpose: str) -> int:
    """`port` itself when it is free."""
    if not is_free(port):
        raise UnreachableError(
            f"{purpose}: port {port} is busy.", hint="Stop what listens there, or ask for another port."
        )
    return port


def answers(port: int) -> bool:
    """True when something accepts connections on this port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def ask(port: int, request: bytes) -> bytes:
    """The first bytes a server says after `request`; none when it does not answer.

    Enough to see by its protocol that a server is ready, without needing its driver installed.
    """
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(request)
            return connection.recv(64)
    except OSError:
        return b""
