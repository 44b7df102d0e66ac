"""The relay and the pipeline as a user runs them: commands in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from inorder.embedded.process import GuardedProcess, Order
from inorder.model.errors import PermanentError

_LAST_LINES = 15


class Service:
    """One `inorder` command that runs until it is stopped; it ends with us, however we end."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._folder = folder
        self._process: GuardedProcess | None = None

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
                    argv=[sys.executable, "-m", "inorder.cli", *self._arguments],
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

    def stop(self) -> None:
        """Asks it to stop; may be called twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def check(self) -> None:
        """Raises if it ended although nobody asked it to."""
        if self._process is not None and self._process.wait(0):
            lines = self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise PermanentError(
                f"The {self.name} ended by itself; its last words were:\n" + "\n".join(lines),
                hint=f"\nAll of them are in {self.log_path}.",
            )


def _environment() -> Mapping[str, str]:
    """Ours, less settings of the user's own, which are not meant for the demo's servers."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("INORDER_")}
    kept = {name: os.environ[name] for name in ("INORDER_CACHE", "INORDER_IVY_SETTINGS") if name in os.environ}
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (source, keep.get("PYTHONPATH", "")) if part)
    return {**keep, **kept, "PYTHONPATH": path}
