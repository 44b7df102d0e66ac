"""Where embedded servers keep what they download and what they run in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from inorder.model.errors import UnreachableError

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
