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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inorder.embedded.process import ServerAccount, is_open_to_all
from inorder.model.errors import ConfigurationError, UnreachableError

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


# The data of one server: made whole or not at all, and removed with all that belongs to them.
#
# `initialised` beside the data says that they were made to the end. Without it, whatever lies there is what an
# interrupted first start left, and is made anew.
#
# A server that runs as another user than ours (PostgreSQL, when we are root) may be unable to walk to our folder.
# Then the data are put up elsewhere and `data` is a link to them: a lodging, which holds the data and the name of
# the link. A lodging whose link is gone, because somebody removed the folder by hand, is removed when the next one
# is made.

LODGINGS = Path("/var/tmp")  # noqa: S108  it survives a reboot, and the names below it are random and private
_PREFIX = "inorder-data-"
_SETTLED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data below the folder of a server."""

    server_folder: Path

    @property
    def path(self) -> Path:
        """Where the data really are."""
        return self._door.resolve()

    @property
    def _door(self) -> Path:
        return self.server_folder / "data"

    @property
    def _marker(self) -> Path:
        return self.server_folder / "initialised"

    @property
    def is_initialised(self) -> bool:
        """True when the server may start on them."""
        return self._marker.exists() and self._door.exists()

    def make(self, account: ServerAccount | None) -> None:
        """An empty folder of `account`, elsewhere with a link to it when that user could not walk here."""
        if account is None or is_open_to_all(self.server_folder):
            self._door.mkdir(mode=0o700)
        else:
            remove_abandoned_lodgings()
            self._door.symlink_to(_lodging(self._door))
        if account is not None:
            os.chown(self.path, account.uid, account.gid)

    def mark_initialised(self) -> None:
        """From now on the data count."""
        self._marker.touch()

    def discard(self) -> None:
        """Remove the data; the log stays."""
        self._marker.unlink(missing_ok=True)
        data = self.path
        shutil.rmtree(data, ignore_errors=True)
        if self._door.is_symlink():
            self._door.unlink()
            # A link somebody else made may lead anywhere; only a lodging of ours goes with its data.
            if data.parent.name.startswith(_PREFIX) and (data.parent / "door").is_file():
                shutil.rmtree(data.parent, ignore_errors=True)


def _lodging(door: Path) -> Path:
    lodging = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=LODGINGS))
    lodging.chmod(0o711)
    (lodging / "door").write_text(str(door), encoding="utf-8")
    (lodging / "data").mkdir(mode=0o700)
    return lodging / "data"


def remove_abandoned_lodgings() -> None:
    """Remove data of ours to which no link leads any more, but none so young that its link may still come."""
    for door in LODGINGS.glob(f"{_PREFIX}*/door"):
        lodging, facts = door.parent, door.stat()
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _SETTLED_SECONDS:
            continue
        if Path(door.read_text(encoding="utf-8")).resolve() != (lodging / "data").resolve():
            shutil.rmtree(lodging, ignore_errors=True)


# Where embedded servers keep what they download and what they run in.

MEGABYTE = 1024 * 1024


def cache_folder() -> Path:
    """The user's cache of jars, binaries and run folders: INORDER_CACHE, else the platform's cache folder."""
    if chosen := os.environ.get("INORDER_CACHE"):
        return Path(chosen).expanduser().absolute()
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches).expanduser().absolute() / "inorder"
    return Path.home() / ".cache" / "inorder"


def need_disk(folder: Path, megabytes: int, purpose: str) -> None:
    """Make `folder` and see that its disk has room: half a server is worse than none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free // MEGABYTE
    except OSError as error:
        raise UnreachableError(
            f"{purpose} needs the folder {folder}, which cannot be used: {error.strerror}.",
            hint="Set INORDER_CACHE to a folder you can write to.",
        ) from error
    if free < megabytes:
        raise UnreachableError(
            f"{purpose} needs {megabytes} MB of disk, and {folder} has {free} MB left.",
            hint="Free some space, or set INORDER_CACHE to a folder on another disk.",
        )
