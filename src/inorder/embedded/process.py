"""A server process under a guardian: what the rest of the package starts and stops."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inorder.embedded import guardian
from inorder.model.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class Account:
    """The user a server runs as when it must not be ours."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Order:
    """All a guardian needs to know to run one server."""

    argv: Sequence[str]
    cwd: Path
    log_path: Path
    env: Mapping[str, str]
    lock: int
    account: Account | None = None
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

    def __init__(self, order: Order) -> None:
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

    def _answer(self, order: Order) -> int:
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
