"""The guardian: a process that ends a server when the process that started it ends.

```
parent ──stdin──▶ guardian ──owns──▶ server (own session)
```

The parent holds the only writing end of the guardian's stdin. When the parent ends, however it ends, the
kernel closes that end, the guardian reads end of file and stops the server: SIGKILL of the parent leaves
nothing behind, and no system call beyond POSIX is needed. Both live in sessions of their own, so Ctrl-C in a
terminal reaches the parent only, which then stops its servers in order.

- Authoritative: the pipe. A change of the parent process is only a second sign, for the case that a forked child
  of the parent keeps the pipe open.
- `kill` on stdin means SIGKILL at once (fault tests); end of file means the stop signal, then SIGKILL when the
  grace period is over.
- The first line on stdout is the server's pid, or `error: …` when it could not be started.

This file is run by its path with `python -I`, so it imports the standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

KILLED = 128 + signal.SIGKILL
_POLL_SECONDS = 1.0


def main(spec: dict[str, Any]) -> int:
    """Runs the server of `spec` until it ends or must end; returns the server's exit status."""
    parent = os.getppid()
    signals = _signal_pipe()
    try:
        server = _start(spec)
    except OSError as error:
        print(f"error: {error}", flush=True)  # noqa: T201  stdout is the answer to the parent
        return 127
    print(server.pid, flush=True)  # noqa: T201  stdout is the answer to the parent
    while server.poll() is None:
        command = _next_command(signals, parent)
        if command == "kill":
            _kill(server)
        elif command == "stop":
            _stop(server, spec)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _signal_pipe() -> int:
    """Turns signals into bytes on a pipe, so that one select waits for everything."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN: ignored signals would stay ignored in the server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reader


def _start(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The server inherits the lock of its folder: it is free only when the last descendant has ended."""
    return subprocess.Popen(
        spec["argv"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        cwd=spec["cwd"],
        user=spec["uid"],
        group=spec["gid"],
        extra_groups=None if spec["gid"] is None else [],
        pass_fds=[spec["lock"]],
        start_new_session=True,
    )


def _next_command(signals: int, parent: int) -> str:
    readable, _, _ = select.select([sys.stdin.fileno(), signals], [], [], _POLL_SECONDS)
    if sys.stdin.fileno() in readable:
        return "kill" if os.read(sys.stdin.fileno(), 64).startswith(b"kill") else "stop"
    if signals in readable and signal.SIGTERM in os.read(signals, 64):
        return "stop"
    return "continue" if os.getppid() == parent else "stop"


def _stop(server: subprocess.Popen[bytes], spec: dict[str, Any]) -> None:
    server.send_signal(spec["signal"])
    try:
        server.wait(spec["grace"])
    except subprocess.TimeoutExpired:
        _kill(server)


def _kill(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
