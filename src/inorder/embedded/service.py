"""Commands beside the servers, our own and others', as a user runs them: in processes of their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from inorder.embedded.process import GuardedProcess, Order
from inorder.model.errors import PermanentError

_LAST_LINES = 15


class Program:
    """One program until it is stopped; it ends with us, however we end."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path) -> None:
        self.name = name
        self.argv = argv
        self._folder = folder
        self._process: GuardedProcess | None = None

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """What it printed, all its lives one after the other."""
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        """Starts it; what it prints goes to its log."""
        lock = os.open(self._folder / f"{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._process = GuardedProcess(
                Order(
                    argv=self.argv,
                    cwd=self._folder,
                    log_path=self.log_path,
                    env=_environment(),
                    lock=lock,
                    grace_seconds=20.0,
                )
            )
        finally:
            os.close(lock)

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Freezes it in the middle of whatever it does; it does not know of the time that passes."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on as if nothing had happened."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Asks it to stop; may be called twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def has_ended(self, seconds: float = 0) -> bool:
        """Waits so long for it to end by itself; whether it has, or was never started."""
        return self._process is None or self._process.wait(seconds)

    def check(self) -> None:
        """Raises if it ended although nobody asked it to."""
        if self._process is not None and self._process.wait(0):
            raise self.early_end()

    def early_end(self) -> PermanentError:
        """The error that tells what it said last."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return PermanentError(
            f"The {self.name} ended by itself; its last words were:\n" + "\n".join(lines),
            hint=f"\nAll of them are in {self.log_path}.",
        )


class Service(Program):
    """One `inorder` command, or another module of ours."""

    def __init__(self, name: str, arguments: list[str], folder: Path, *, module: str = "inorder.cli") -> None:
        super().__init__(name, [sys.executable, "-m", module, *arguments], folder)


def _environment() -> Mapping[str, str]:
    """Ours, less settings of the user's own, which are not meant for embedded servers."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("INORDER_")}
    kept = {name: os.environ[name] for name in ("INORDER_CACHE", "INORDER_IVY_SETTINGS") if name in os.environ}
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (source, keep.get("PYTHONPATH", "")) if part)
    return {**keep, **kept, "PYTHONPATH": path}
