"""Servers that refuse to run as root: whom they run as instead, and where that user can reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from inorder.embedded.process import Account
from inorder.model.errors import UnreachableError


def unprivileged() -> Account | None:
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
    return Account(entry.pw_uid, entry.pw_gid)


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
