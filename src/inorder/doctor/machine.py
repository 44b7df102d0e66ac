"""The machine: Python, Java, disk."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from inorder.doctor.check import Check, fail, of_error, ok, unreachable, warn
from inorder.embedded.java import find_java, java_version
from inorder.embedded.places import cache_folder
from inorder.model.errors import InorderError

OLDEST_PYTHON = (3, 11)
GIGABYTE = 1024**3

# Jars and binaries of every embedded server take about one; the rest is room for their data.
WANTED_FREE_BYTES = 3 * GIGABYTE
LEAST_FREE_BYTES = GIGABYTE // 2


def examine_machine() -> list[Check]:
    """What the machine itself must have."""
    return [_python(), _java(), _disk(cache_folder())]


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return fail("python", f"{version} at {sys.executable}", "Use Python 3.11 or newer.")
    return ok("python", f"{version} at {sys.executable}")


def _java() -> Check:
    try:
        java = find_java()
    except InorderError as error:
        return of_error("java", error)
    return ok("java", f"{java_version(java)} at {java}")


def _disk(folder: Path) -> Check:
    # The folder comes into being with the first download; its nearest parent is on the same disk.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / GIGABYTE:.1f} GB free in {folder}"
    hint = "Free some space, or set INORDER_CACHE to a folder on another disk."
    if free < LEAST_FREE_BYTES:
        return unreachable("disk", detail, hint)
    return ok("disk", detail) if free >= WANTED_FREE_BYTES else warn("disk", detail, hint)
