"""A checkpoint folder for one start of a query: fresh, and gone afterwards, also after a crash.

Spark insists on one; we never read it, as the pointers tell where to begin. A driver that is killed cannot remove its
own, so each holds a lock that the system frees when the process ends, and every start removes folders whose lock is
free.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "inorder-checkpoint-"
_MAKING = "inorder-making-checkpoint-"
_LOCK = "lock"


@contextmanager
def checkpoint_folder() -> Iterator[str]:
    """The folder for `checkpointLocation`, for as long as the block lasts."""
    remove_left_behind(Path(tempfile.gettempdir()))
    making = Path(tempfile.mkdtemp(prefix=_MAKING))
    lock = os.open(making / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Locked before it has the name that others look for: one that is not locked yet would be taken for left behind.
    folder = making.rename(making.with_name(making.name.replace(_MAKING, _PREFIX, 1)))
    try:
        yield str(folder / "checkpoint")
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(parent: Path) -> list[Path]:
    """Removes the folders of processes that are gone, as far as we may, and returns them."""
    found = [folder for folder in parent.glob(f"{_PREFIX}*") if _is_left_behind(folder)]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_left_behind(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False  # being made or removed at this moment, or another user's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
