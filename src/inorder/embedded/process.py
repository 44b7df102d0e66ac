"""A server process under a guardian: what the rest of the package starts and stops."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inorder.embedded import guardian
from inorder.model.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The user a server runs as when it must not be ours."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """All a guardian needs to know to run one server."""

    argv: Sequence[str]
    cwd: Path
    log_path: Path
    env: Mapping[str, str]
    lock: int
    account: ServerAccount | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0

    def as_json(self) -> str:
        """The order in the words of the guardian."""
        return json.dumps(
            {
                "argv": list(self.argv),
                "cwd": str(self.cwd),
                "uid": self.account.uid if self.account else None,
                "gid": self.account.gid if self.account else None,
                "lock": self.lock,
                "signal": int(self.stop_signal),
                "grace": self.grace_seconds,
            }
        )


class GuardedProcess:
    """A running server; it ends with us, however we end."""

    def __init__(self, order: ProcessSpec) -> None:
        self._grace_seconds = order.grace_seconds
        with order.log_path.open("ab") as log:
            # By path and isolated: our folder holds modules called redis and cassandra, which must not stand
            # on the guardian's import path, and it starts in half the time.
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, order.as_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(order.env),
                pass_fds=[order.lock],
                start_new_session=True,
            )
        self.pid = self._answer(order)

    def _answer(self, order: ProcessSpec) -> int:
        assert self._guardian.stdout is not None  # noqa: S101  said for the type checker: it is a pipe
        line = self._guardian.stdout.readline().decode().strip()
        if line.isdigit():
            return int(line)
        self.stop()
        raise UnreachableError(f"{order.argv[0]} could not be started: {line.removeprefix('error: ')}.")

    @property
    def guardian_pid(self) -> int:
        """The process that watches over the server."""
        return self._guardian.pid

    def wait(self, seconds: float) -> bool:
        """True once the server has ended, False when it still runs after `seconds`."""
        try:
            self._guardian.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> bool:
        """Ask politely, kill when the grace is over; true when it went by itself."""
        self._end(b"")
        return self._guardian.returncode != guardian.KILLED

    def kill(self) -> None:
        """SIGKILL the server, as a crash would."""
        self._end(b"kill\n")

    def _end(self, word: bytes) -> None:
        # A broken pipe only says that the server had ended by itself, and its guardian with it.
        if stdin := self._guardian.stdin:
            with suppress(BrokenPipeError), stdin:
                stdin.write(word)
        if stdout := self._guardian.stdout:
            stdout.close()
        self._guardian.wait(self._grace_seconds + 10)


# Servers that refuse to run as root: whom they run as instead, and where that user can reach.


def unprivileged_account() -> ServerAccount | None:
    """None for ordinary users, who run servers as themselves; `nobody` when we are root.

    `nobody` is on every Unix, so we need not add a user to somebody's machine.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise UnreachableError(
            "PostgreSQL refuses to run as root, and there is no user nobody to run it as.",
            hint="Run inorder as an ordinary user.",
        ) from None
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def is_open_to_all(path: Path) -> bool:
    """True when every user may walk to `path`; root's home, for one, is closed to all others."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


def reachable_copy(site: Path, folders: Sequence[str], name: str) -> Path:
    """A copy of some folders of `site` where every user can read them, made once and owned by root."""
    copy = Path(tempfile.gettempdir()) / f"inorder-{name}"
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix="inorder-"))
        for folder in folders:
            shutil.copytree(site / folder, fresh / folder, symlinks=True)
        _open_to_all(fresh)
        try:
            fresh.rename(copy)
        except OSError:  # another process was faster; its copy is as good
            shutil.rmtree(fresh)
    if copy.stat().st_uid != os.geteuid():
        raise UnreachableError(f"{copy} belongs to another user.", hint="Remove it, then try again.")
    return copy


def _open_to_all(folder: Path) -> None:
    """What its owner may read and run, all may; a strict umask would otherwise travel with a copy."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


# Free ports on the loopback address.

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


def accepts_connections(port: int) -> bool:
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
