"""Finds a Java that can run Spark, Kafka and Cassandra."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from inorder.model.errors import UnreachableError

OLDEST_JAVA = 17
_HINT = "Install Java 17 or newer and set JAVA_HOME, or put java on the PATH."


def find_java() -> Path:
    """The java to run: JAVA_HOME's if that is set, else the first on PATH; UnreachableError if unfit."""
    java = _candidate()
    version = java_version(java)
    if version is None:
        raise UnreachableError(f"{java} is not a working Java.", hint=_HINT)
    if version < OLDEST_JAVA:
        raise UnreachableError(f"{java} is Java {version}, and inorder needs {OLDEST_JAVA} or newer.", hint=_HINT)
    return java


def _candidate() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise UnreachableError(f"JAVA_HOME is {home}, and there is no bin/java in it.", hint=_HINT)
        return java
    if found := shutil.which("java"):
        return Path(found)
    raise UnreachableError("Java was not found: JAVA_HOME is not set and no java is on the PATH.", hint=_HINT)


@functools.cache
def java_version(java: Path) -> int | None:
    """The major version of a java program, or None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(done.stderr + done.stdout)


def parse_version(banner: str) -> int | None:
    """The major version in what `java -version` prints; Java 8 still called itself 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(match.group(1)) if match else None
