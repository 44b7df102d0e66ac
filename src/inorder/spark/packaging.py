"""What a cluster needs of inorder, as files: `inorder pipeline package`.

The archive holds the packages of inorder and of all that it requires here, without Spark's own, which a cluster has. It
unpacks anywhere: there are no absolute paths, links or scripts of a virtual environment in it, only `bin/python`, which
starts the node's own Python with these packages first. That Python must have the same minor version and platform as the
one that made the archive, because some packages are compiled for it. `venv-pack` has the same limits, and packs all of
an environment, with Spark and every tool in it.

The same packages give the same bytes, so a cluster that caches archives by their content keeps them.
"""

from __future__ import annotations

import gzip
import io
import re
import shlex
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final

import inorder
from inorder.embedded.jars import Jar, fetch, jar_set
from inorder.model.errors import ConfigurationError
from inorder.spark import submit

ARCHIVE: Final = "inorder-environment.tar.gz"
JOB: Final = "inorder-job.py"
"""What `spark-submit` gets: it takes a file for Python only by the ending."""
EXTRAS: Final = frozenset({"mysql", "spark", "cassandra", "redis", "schema"})
"""Of inorder; those whose packages are installed are packed."""
OF_SPARK: Final = frozenset({"pyspark", "py4j"})
_JAR_SETS: Final = ("spark", "delta")
_PACKAGES: Final = PurePosixPath("lib/packages")
_LAUNCHER: Final = """\
#!/bin/sh
# Starts this node's Python with the packages beside it. INORDER_PYTHON names another Python.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib/packages${{PYTHONPATH:+:$PYTHONPATH}}" exec "${{INORDER_PYTHON:-python{major}.{minor}}}" "$@"
"""
_REQUIREMENT: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*(?:;(?P<marker>.*))?$")
_OF_EXTRA: Final = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")


@dataclass(frozen=True, slots=True)
class Package:
    """What was written, and what a cluster needs besides."""

    archive: Path
    job: Path
    python: str
    packages: tuple[str, ...]
    jars: tuple[Jar, ...]
    """Of Spark's Kafka connector, for `micro-batch`, and of Delta Lake, for tables with a `target`."""
    jar_folder: Path | None
    """Where they were copied to, if they were."""

    def as_dict(self) -> dict[str, Any]:
        jars = [{"coordinates": jar.coordinates, "sha256": jar.sha256, "file": jar.file_name} for jar in self.jars]
        return {
            "archive": str(self.archive),
            "job": str(self.job),
            "python": self.python,
            "packages": list(self.packages),
            "jars": jars,
            "jar_folder": None if self.jar_folder is None else str(self.jar_folder),
        }

    def submit_line(self) -> str:
        """How `spark-submit` takes these files in client mode, its default.

        There the driver starts before the archive is unpacked, and none is unpacked into its folder: it runs in this
        Python. In cluster mode it is a process of a node, and runs in that of the archive.
        """
        folder = "" if self.jar_folder is None else f"{self.jar_folder}/"
        jars = ",".join(f"{folder}{jar.file_name}" for jar in self.jars)
        return (
            f"PYSPARK_DRIVER_PYTHON={shlex.quote(sys.executable)} PYSPARK_PYTHON=./environment/bin/python spark-submit"
            f" --archives {self.archive}#environment --jars {jars} {self.job} upsert --config inorder.toml"
        )


def package(folder: Path, *, with_jars: bool = False, extras: Collection[str] = EXTRAS) -> Package:
    """Writes the archive and the file for `spark-submit` into a folder, and the jars on request."""
    folder.mkdir(parents=True, exist_ok=True)
    found = distributions(extras)
    archive, job = folder / ARCHIVE, folder / JOB
    write_archive(archive, found.values(), Path(inorder.__file__).parent)
    shutil.copyfile(submit.__file__, job)
    jars = tuple(jar for name in _JAR_SETS for jar in jar_set(name).jars)
    if with_jars:
        for path in (path for name in _JAR_SETS for path in fetch(name)):
            shutil.copyfile(path, folder / path.name)
    versions = tuple(f"{name}=={each.version}" for name, each in sorted(found.items()))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Package(archive, job, python, versions, jars, folder if with_jars else None)


def distributions(extras: Collection[str]) -> dict[str, metadata.Distribution]:
    """inorder and what it requires, as far as it is installed, by name."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [("inorder", frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        name, chosen = wanted.pop()
        if (name, chosen) in seen or name in OF_SPARK:
            continue
        seen.add((name, chosen))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name == "inorder":
                raise ConfigurationError(
                    "inorder is not installed in this Python, so it is unknown what it requires.",
                    hint="Install it with pip, then run the command of that environment.",
                ) from None
            continue  # an extra that is not used here, or a requirement of another platform
        wanted += required(found[name].requires or (), chosen)
    return found


def required(requirements: Iterable[str], extras: Collection[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The names that requirements ask for, each with its extras; those of extras that were not chosen are left out.

    >>> list(required(["psycopg[binary]>=3.3", "redis>=6; extra == 'redis'", "Py_MySQL; extra == 'mysql'"], ["mysql"]))
    [('psycopg', frozenset({'binary'})), ('py-mysql', frozenset())]
    """
    for text in requirements:
        if (match := _REQUIREMENT.match(text.strip())) is None:
            continue
        only_for = _OF_EXTRA.findall(match["marker"] or "")
        if only_for and not set(only_for) & set(extras):
            continue
        chosen = frozenset(part.strip() for part in (match["extras"] or "").split(",") if part.strip())
        yield re.sub(r"[-_.]+", "-", match["name"]).lower(), chosen


def write_archive(archive: Path, found: Iterable[metadata.Distribution], package: Path) -> None:
    """Packs the files of some distributions; inorder itself is `package`, wherever it is run from."""
    entries: dict[PurePosixPath, Path] = {}
    for each in found:
        for file in each.files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts and file.suffix != ".pth":
                entries[_PACKAGES / PurePosixPath(*file.parts)] = Path(str(each.locate_file(file)))
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            entries[_PACKAGES / "inorder" / PurePosixPath(*path.relative_to(package).parts)] = path
    making = archive.with_name(f"{archive.name}.part")
    with (
        making.open("wb") as stream,
        gzip.GzipFile("", "wb", 6, stream, 0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        launcher = _LAUNCHER.format(major=sys.version_info.major, minor=sys.version_info.minor).encode()
        _add(tar, PurePosixPath("bin/python"), launcher, 0o755)
        for name, path in sorted(entries.items()):
            if path.is_file():
                _add(tar, name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    making.replace(archive)


def _add(tar: tarfile.TarFile, name: PurePosixPath, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(str(name))
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
