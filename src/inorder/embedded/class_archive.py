"""Java classes ready to map: loading them is half the work of starting Kafka, and the same every time.

The first server that stops in an orderly way leaves an archive of what it loaded; those after it start on it.
It is a hint only: the JVM checks it against its own version and the jars, and goes without when they differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inorder.embedded.jars import JarSet
from inorder.embedded.places import cache_folder


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one set of jars under one Java, and where a server writes it when there is none yet."""

    path: Path
    written: Path

    @classmethod
    def of(cls, jars: JarSet, java: Path, server_folder: Path) -> ClassArchive:
        """An updated Java is another Java, known by the time of its file."""
        program = java.resolve()
        key = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
        path = cache_folder() / "classes" / f"{jars.folder.name}-{key}.jsa"
        return cls(path, server_folder / "classes.jsa")

    def flags(self) -> list[str]:
        """For the JVM: use the archive, or write one at the end."""
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        self.written.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self.written}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def collect(self) -> None:
        """Take over what an orderly stop has written."""
        if not self.written.exists():
            return
        # Copied beside its place first: the run folder may be on another disk, and only a rename is whole.
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk costs the next start a second, not this stop its success
            self.path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.written, fresh)
            fresh.rename(self.path)
        for left_over in (fresh, self.written):
            with suppress(OSError):
                left_over.unlink()
