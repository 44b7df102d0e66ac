"""The folder a stack runs in, and who owns it.

- Authoritative: the lock on `owner`, which the kernel frees when its process ends, however it ends. The pid
  written in the file only tells people whom to look for.
- A folder the user named is kept, and reused after a clean stop and after a crash alike.
- A folder of ours lies under the cache's `run` and is used once. A clean stop removes the data and leaves the
  logs; what a crash left is removed by a later start. The logs of the last few runs stay.
- One start at a time clears and makes folders there (the lock on `run` itself): a second one would look into
  folders that the first is removing, and take a folder that is made but not yet owned for a dead one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inorder.embedded.data_folder import DataFolder
from inorder.embedded.places import cache_folder, need_disk
from inorder.model.errors import ConfigurationError

_KEPT_RUNS = 5


class RunFolder:
    """An owned folder; `close` gives it back."""

    def __init__(self, path: Path, lock: int, *, is_ours: bool) -> None:
        self.path = path
        self._lock = lock
        self._is_ours = is_ours

    @classmethod
    def named(cls, path: Path) -> RunFolder:
        """The user's folder, taken over when its last owner is dead; ConfigurationError when it lives."""
        path = path.expanduser().absolute()
        need_disk(path, 300, "The embedded stack")
        lock = _try_lock(path)
        if lock is None:
            raise ConfigurationError(
                f"The folder {path} is in use by the stack of process {_owner(path)}.",
                hint="Stop that process, or use another folder.",
            )
        return cls(path, lock, is_ours=False)

    @classmethod
    def fresh(cls) -> RunFolder:
        """A new folder under the cache, once the leavings of dead runs are cleared."""
        runs = cache_folder() / "run"
        need_disk(runs, 300, "The embedded stack")
        with _one_at_a_time(runs):
            clear_dead_runs(runs)
            path = Path(tempfile.mkdtemp(prefix="stack-", dir=runs))
            lock = _try_lock(path)
        assert lock is not None  # noqa: S101  whoever would look for it waits
        return cls(path, lock, is_ours=True)

    def close(self) -> None:
        """Give the folder back; the data of a folder of ours go, its logs stay."""
        if self._is_ours:
            remove_data(self.path)
        os.close(self._lock)


@contextmanager
def _one_at_a_time(runs: Path) -> Iterator[None]:
    lock = os.open(runs, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _try_lock(path: Path) -> int | None:
    lock = os.open(path / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def _owner(path: Path) -> str:
    return (path / "owner").read_text(encoding="ascii") or "unknown"


def remove_data(path: Path) -> None:
    """Everything but the logs."""
    for server_folder in path.iterdir():
        if server_folder.is_dir():
            DataFolder(server_folder).discard()


def clear_dead_runs(runs: Path) -> None:
    """Remove what dead owners left, keeping the logs of the newest few."""
    oldest_last = sorted(runs.glob("stack-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for rank, path in enumerate(oldest_last):
        lock = _try_lock(path)
        if lock is None:
            continue
        remove_data(path)
        if rank >= _KEPT_RUNS:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
