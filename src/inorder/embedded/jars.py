"""Java, and the sets of jars that the embedded servers and Spark need.

Sets are fetched once per user through the Ivy that PySpark ships. `jars.toml` names every jar of every set with its
SHA-256, so a resolution reads no poms, what runs is what was tested, and a mirror that serves another file is detected.
A set is downloaded into a temporary folder and renamed when it is complete: a set's folder that exists is usable. Some
servers are programs inside a jar (`unpack`). A class archive makes the start of a Java server faster (`ClassArchive`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inorder.embedded.folders import cache_folder, need_disk
from inorder.model.errors import UnreachableError

_DOWNLOAD_SECONDS = 1800
_MIRROR_HINT = "Check the network, or name your mirror's Ivy settings in INORDER_IVY_SETTINGS."


@dataclass(frozen=True, slots=True)
class Jar:
    """One artefact of a Maven repository, with the hash of its content."""

    organisation: str
    module: str
    revision: str
    classifier: str
    sha256: str

    @classmethod
    def parse(cls, coordinates: str, sha256: str) -> Jar:
        """From `organisation:module:revision` or `organisation:module:revision:classifier`."""
        organisation, module, revision, *rest = coordinates.split(":")
        return cls(organisation, module, revision, rest[0] if rest else "", sha256)

    @property
    def coordinates(self) -> str:
        return ":".join(filter(None, (self.organisation, self.module, self.revision, self.classifier)))

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.module, self.revision, self.classifier))) + ".jar"

    @property
    def module_attributes(self) -> str:
        """The attributes that identify a module in Ivy; several jars may belong to one module."""
        return f'org="{self.organisation}" name="{self.module}" rev="{self.revision}"'

    def artefact(self) -> str:
        """Its element in an Ivy module descriptor."""
        classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
        return f'<artifact name="{self.module}" type="jar"{classifier}/>'


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of one product, with its display name."""

    name: str
    title: str
    megabytes: int
    jars: tuple[Jar, ...]

    @classmethod
    def parse(cls, name: str, entry: Mapping[str, Any]) -> JarSet:
        """From an entry of `jars.toml`."""
        jars = tuple(Jar.parse(coordinates, sha256) for coordinates, sha256 in entry["jars"].items())
        return cls(name, entry["title"], entry["megabytes"], jars)

    @property
    def folder(self) -> Path:
        """Its folder in the cache; another list has another folder, so versions never mix."""
        digest = hashlib.sha256("".join(jar.sha256 for jar in self.jars).encode()).hexdigest()[:12]
        return cache_folder() / "jars" / f"{self.name}-{digest}"

    def paths(self) -> list[Path]:
        """The files, in the order of the list."""
        return [self.folder / jar.file_name for jar in self.jars]

    def module_descriptor(self) -> str:
        """The set as an Ivy module descriptor."""
        modules: dict[str, list[str]] = {}
        for jar in self.jars:
            modules.setdefault(jar.module_attributes, []).append(jar.artefact())
        lines = "\n".join(
            f'    <dependency {module} transitive="false" conf="set->master">{"".join(jars)}</dependency>'
            for module, jars in modules.items()
        )
        return (
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
            f'  <info organisation="inorder" module="{self.name}"/>\n'
            '  <configurations><conf name="set"/></configurations>\n'
            f"  <dependencies>\n{lines}\n  </dependencies>\n</ivy-module>\n"
        )


def jar_sets() -> dict[str, Any]:
    """The entries of `jars.toml`, by the name of the set."""
    return tomllib.loads(files("inorder.embedded").joinpath("jars.toml").read_text("utf-8"))


def jar_set(name: str) -> JarSet:
    return JarSet.parse(name, jar_sets()[name])


def spark_jars() -> list[str]:
    """Paths of the jars Spark needs to read Kafka, fetched on the first call."""
    return [str(path) for path in fetch("spark")]


def delta_jars() -> list[str]:
    """Paths of the jars Spark needs to write Delta tables, fetched on the first call."""
    return [str(path) for path in fetch("delta")]


def fetch(name: str) -> list[Path]:
    """The files of a set of `jars.toml`, downloaded if they are not in the cache."""
    return fetch_set(jar_set(name))


def fetch_set(wanted: JarSet) -> list[Path]:
    """The files of any set, downloaded if they are not in the cache."""
    if not wanted.folder.is_dir():
        _fetch_locked(wanted)
    return wanted.paths()


def _fetch_locked(wanted: JarSet) -> None:
    downloads = cache_folder() / "downloads"
    need_disk(downloads, wanted.megabytes * 3, wanted.title)
    with file_lock(downloads / f"{wanted.name}.lock"):
        if not wanted.folder.is_dir():  # another process may have fetched it meanwhile
            work = downloads / wanted.name
            _download(wanted, work)
            _check(wanted, work / "set")
            wanted.folder.parent.mkdir(parents=True, exist_ok=True)
            (work / "set").rename(wanted.folder)
            shutil.rmtree(work)


@contextmanager
def file_lock(lock_path: Path) -> Iterator[None]:
    """Holds a lock file for the block; the kernel releases the lock of a process that dies."""
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _download(wanted: JarSet, work: Path) -> None:
    """Ivy's own cache stays in `work` until the set is complete, so an interrupted download can continue."""
    count = len(wanted.jars)
    _say(f"fetching {wanted.title} … {count} jar{'s' if count > 1 else ''}, {wanted.megabytes} MB")
    command = _ivy_command(wanted, work)
    log_path = work / "ivy.log"
    with log_path.open("wb") as log:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_DOWNLOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _not_downloaded(wanted, log_path) from error
    if done.returncode:
        raise _not_downloaded(wanted, log_path)


def _ivy_command(wanted: JarSet, work: Path) -> list[str]:
    java = find_java()
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work / "set", ignore_errors=True)
    (work / "ivy.xml").write_text(wanted.module_descriptor(), encoding="utf-8")
    # With timeouts a dead mirror becomes an error, not a hanging command.
    flags = ["-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=60000"]
    pattern = f"{work}/set/[artifact]-[revision](-[classifier]).[ext]"
    command = [
        str(java),
        *flags,
        "-jar",
        str(ivy_jar()),
        "-cache",
        str(work / "ivy"),
        "-ivy",
        str(work / "ivy.xml"),
    ]
    return [*command, *_settings(), "-types", "jar", "bundle", "-retrieve", pattern]


def _settings() -> list[str]:
    """The user's Ivy settings, which may name a mirror."""
    named = os.environ.get("INORDER_IVY_SETTINGS")
    path = Path(named).expanduser() if named else Path.home() / ".ivy2" / "ivysettings.xml"
    if named and not path.is_file():
        raise UnreachableError(f"INORDER_IVY_SETTINGS names {path}, which is not a file.", hint="Correct or unset it.")
    return ["-settings", str(path)] if path.is_file() else []


def ivy_jar() -> Path:
    """Apache Ivy from PySpark's jars."""
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    raise UnreachableError(
        "PySpark, whose Ivy fetches the servers' jars, is not installed.",
        hint="Run: pip install 'inorder[embedded]'",
    )


def _check(wanted: JarSet, folder: Path) -> None:
    for jar in wanted.jars:
        path = folder / jar.file_name
        if not path.is_file():
            raise _not_downloaded(wanted, folder.parent / "ivy.log")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != jar.sha256:
            shutil.rmtree(folder.parent)  # otherwise Ivy's cache would serve the wrong file again
            raise UnreachableError(
                f"{jar.file_name} of {wanted.title} has the SHA-256 {found}, not {jar.sha256}.",
                hint="The mirror serves a different file than inorder was tested with; use another mirror.",
            )


def _not_downloaded(wanted: JarSet, log_path: Path) -> UnreachableError:
    return UnreachableError(
        f"{wanted.title} could not be downloaded (details: {log_path}).",
        hint=_MIRROR_HINT,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  progress belongs on stderr


def unpack(name: str, inside: str, megabytes: int) -> Path:
    """Unpacks the entries below `inside` of the only jar of the set `name`, once per user; returns their folder."""
    wanted = jar_set(name)
    target = cache_folder() / "programs" / wanted.folder.name
    if not target.is_dir():
        need_disk(target.parent, megabytes, wanted.title)
        with file_lock(target.parent / f"{name}.lock"):
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
                path.chmod(0o755)  # jars do not keep the executable bit
    work.rename(target)


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Preloaded classes of one set of jars under one Java: loading them is half the work of starting Kafka.

    The first server that stops in an orderly way writes an archive of what it loaded; later ones start from it. It is
    an optimisation only: the JVM checks it against its own version and the jars, and ignores it when they differ."""

    path: Path
    written: Path

    @classmethod
    def of(cls, jars: JarSet, java: Path, server_folder: Path) -> ClassArchive:
        """An updated Java has another archive; it is recognised by the modification time of its file."""
        program = java.resolve()
        key = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
        path = cache_folder() / "classes" / f"{jars.folder.name}-{key}.jsa"
        return cls(path, server_folder / "classes.jsa")

    def flags(self) -> list[str]:
        """Flags for the JVM: use the archive, or write one at exit."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        self.written.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self.written}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def collect(self) -> None:
        """Moves an archive that an orderly stop wrote into the cache."""
        if not self.written.exists():
            return
        # Copied into its folder first: the run folder may be on another disk, and only a rename is atomic.
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):  # without it the next start is a second slower; the stop must not fail
            self.path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.written, fresh)
            fresh.rename(self.path)
        for left_over in (fresh, self.written):
            with suppress(OSError):
                left_over.unlink()


OLDEST_JAVA = 17
_HINT = "Install Java 17 or newer and set JAVA_HOME, or put java on the PATH."


def find_java() -> Path:
    """The java to run: that of JAVA_HOME if set, else the first on PATH; raises `UnreachableError` if it is too old."""
    java = _candidate()
    version = java_version(java)
    if version is None:
        raise UnreachableError(f"{java} is not a working Java.", hint=_HINT)
    if version < OLDEST_JAVA:
        raise UnreachableError(f"{java} is Java {version}; inorder needs {OLDEST_JAVA} or newer.", hint=_HINT)
    return java


def _candidate() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise UnreachableError(f"JAVA_HOME is {home}, where bin/java does not exist.", hint=_HINT)
        return java
    if found := shutil.which("java"):
        return Path(found)
    raise UnreachableError("Java was not found: JAVA_HOME is not set and no java is on the PATH.", hint=_HINT)


@functools.cache
def java_version(java: Path) -> int | None:
    """The major version of a java program; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(done.stderr + done.stdout)


def parse_version(banner: str) -> int | None:
    """The major version in the output of `java -version`; Java 8 calls itself 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(match.group(1)) if match else None
