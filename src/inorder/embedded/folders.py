"""The folders that embedded servers run in: who owns them, where the data are, and which user runs a server.

**Run folders** belong to a stack.

- Authoritative: the lock on `owner`, which the kernel releases when its process ends, however it ends. The pid in the
  file is for people only.
- A folder that the user named is kept, and reused after a clean stop and after a crash alike.
- Any other folder is created under the cache's `run` and used once. A clean stop removes the data and leaves the logs;
  a later start removes what a crash left. The logs of the last few runs are kept.
- One start at a time removes and creates folders there (the lock on `run` itself): a second one would look into folders
  that the first is removing, and mistake a folder that is created but not yet locked for an abandoned one.

**Data folders** belong to a server.

- The file `initialised` beside the data says that they are complete. Without it, the data are what an interrupted first
  start left, and are created again.
- A server that runs as another user (PostgreSQL, when the process is root) may have no access to the run folder. Then
  the data are in a folder under `EXTERNAL`, `data` is a link to it, and the file `link` beside the data has the path
  of that link. An external folder whose link no longer exists is removed when the next one is created.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inorder.model.errors import ConfigurationError, UnreachableError

_KEPT_RUNS = 5


class RunFolder:
    """A locked folder; `close` releases it."""

    def __init__(self, path: Path, lock: int, *, is_temporary: bool) -> None:
        self.path = path
        self._lock = lock
        self._is_temporary = is_temporary

    @classmethod
    def named(cls, path: Path) -> RunFolder:
        """Locks the user's folder; raises `ConfigurationError` while another process owns it."""
        path = path.expanduser().absolute()
        need_disk(path, 300, "The embedded stack")
        lock = _try_lock(path)
        if lock is None:
            raise ConfigurationError(
                f"The folder {path} is in use by the stack of process {_owner(path)}.",
                hint="Stop that process, or use another folder.",
            )
        return cls(path, lock, is_temporary=False)

    @classmethod
    def fresh(cls) -> RunFolder:
        """Creates a folder under the cache, and removes those of dead runs."""
        runs = cache_folder() / "run"
        need_disk(runs, 300, "The embedded stack")
        with _one_at_a_time(runs):
            clear_dead_runs(runs)
            path = Path(tempfile.mkdtemp(prefix="stack-", dir=runs))
            lock = _try_lock(path)
        assert lock is not None  # noqa: S101  other starts wait for the lock on `run`
        return cls(path, lock, is_temporary=True)

    def close(self) -> None:
        """Releases the folder; the data of a folder under the cache are removed, its logs stay."""
        if self._is_temporary:
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
    """Removes everything but the logs."""
    for server_folder in path.iterdir():
        if server_folder.is_dir():
            DataFolder(server_folder).discard()


def clear_dead_runs(runs: Path) -> None:
    """Removes the data of dead runs, and all but the newest few of their folders."""
    newest_first = sorted(runs.glob("stack-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for rank, path in enumerate(newest_first):
        lock = _try_lock(path)
        if lock is None:
            continue
        remove_data(path)
        if rank >= _KEPT_RUNS:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


EXTERNAL = Path("/var/tmp")  # noqa: S108  it survives a reboot, and the names below it are random and private
_PREFIX = "inorder-data-"
_SETTLED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data of one server, below its folder."""

    server_folder: Path

    @property
    def path(self) -> Path:
        """The actual folder, which may be elsewhere."""
        return self._link.resolve()

    @property
    def _link(self) -> Path:
        return self.server_folder / "data"

    @property
    def _marker(self) -> Path:
        return self.server_folder / "initialised"

    @property
    def is_initialised(self) -> bool:
        """Whether the data are complete."""
        return self._marker.exists() and self._link.exists()

    def make(self, account: ServerAccount | None) -> None:
        """Creates an empty folder owned by `account`, under `EXTERNAL` where that user has no access here."""
        if account is None or is_open_to_all(self.server_folder):
            self._link.mkdir(mode=0o700)
        else:
            remove_abandoned_data()
            self._link.symlink_to(_create_external(self._link))
        if account is not None:
            os.chown(self.path, account.uid, account.gid)

    def mark_initialised(self) -> None:
        self._marker.touch()

    def discard(self) -> None:
        """Removes the data; the log stays."""
        self._marker.unlink(missing_ok=True)
        data = self.path
        shutil.rmtree(data, ignore_errors=True)
        if self._link.is_symlink():
            self._link.unlink()
            # A link that the user made may lead anywhere; only a folder created here is removed.
            if data.parent.name.startswith(_PREFIX) and (data.parent / "link").is_file():
                shutil.rmtree(data.parent, ignore_errors=True)


def _create_external(link: Path) -> Path:
    external = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=EXTERNAL))
    external.chmod(0o711)
    (external / "link").write_text(str(link), encoding="utf-8")
    (external / "data").mkdir(mode=0o700)
    return external / "data"


def remove_abandoned_data() -> None:
    """Removes external data without a link, except those so new that the link may still be created."""
    for link in EXTERNAL.glob(f"{_PREFIX}*/link"):
        external, facts = link.parent, link.stat()
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _SETTLED_SECONDS:
            continue
        if Path(link.read_text(encoding="utf-8")).resolve() != (external / "data").resolve():
            shutil.rmtree(external, ignore_errors=True)


MEGABYTE = 1024 * 1024


def cache_folder() -> Path:
    """The user's cache of jars, binaries and run folders: INORDER_CACHE, else XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("INORDER_CACHE"):
        return Path(chosen).expanduser().absolute()
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches).expanduser().absolute() / "inorder"
    return Path.home() / ".cache" / "inorder"


def need_disk(folder: Path, megabytes: int, purpose: str) -> None:
    """Creates `folder` and checks the free disk space: a server that fails halfway is worse than none."""
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
            f"{purpose} needs {megabytes} MB of disk space, and {folder} has {free} MB left.",
            hint="Free some space, or set INORDER_CACHE to a folder on another disk.",
        )


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The user that a server runs as instead of the current one."""

    uid: int
    gid: int


def unprivileged_account() -> ServerAccount | None:
    """The account for servers that refuse to run as root: `nobody`, which every Unix has; None for ordinary users."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise UnreachableError(
            "PostgreSQL refuses to run as root, and the user nobody does not exist.",
            hint="Run inorder as an ordinary user.",
        ) from None
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def is_open_to_all(path: Path) -> bool:
    """Whether every user may traverse the folders of `path`; root's home, for one, is closed."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


def reachable_copy(site: Path, folders: Sequence[str], name: str) -> Path:
    """A copy of some folders of `site` that every user can read, created once and owned by root."""
    copy = Path(tempfile.gettempdir()) / f"inorder-{name}"
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix="inorder-"))
        for folder in folders:
            shutil.copytree(site / folder, fresh / folder, symlinks=True)
        _open_to_all(fresh)
        try:
            fresh.rename(copy)
        except OSError:  # another process was faster, and its copy is equal
            shutil.rmtree(fresh)
    if copy.stat().st_uid != os.geteuid():
        raise UnreachableError(f"{copy} belongs to another user.", hint="Remove it, then try again.")
    return copy


def _open_to_all(folder: Path) -> None:
    """Gives all users the owner's permissions to read and execute, whatever the umask."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)
