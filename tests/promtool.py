"""promtool for the tests of the alert rules: the machine's own, or that of Debian's package, fetched once per user.

apt fetches the package without root where the machine has apt and a list of packages; it checks the hash. Elsewhere
there is no promtool, and the rules are checked by a parser of PromQL only (`tests/unit/docs/test_views.py`).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from inorder.embedded.folders import cache_folder
from inorder.embedded.jars import file_lock

_SECONDS = 120


def find_promtool() -> Path | None:
    """The program; None where there is none and none can be had."""
    if found := shutil.which("promtool"):
        return Path(found)
    program = cache_folder() / "promtool" / "promtool"
    downloads = cache_folder() / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with file_lock(downloads / "promtool.lock"):
        if not program.is_file():
            try:
                _fetch(downloads / "promtool", program)
            except (OSError, subprocess.SubprocessError, StopIteration):
                return None
    return program


def _fetch(work: Path, program: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for command in (["apt-get", "download", "-q", "prometheus"], ["sh", "-c", "dpkg-deb -x prometheus_*.deb unpacked"]):
        subprocess.run(command, cwd=work, capture_output=True, timeout=_SECONDS, check=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    next(work.glob("unpacked/usr/bin/promtool")).rename(program)
    shutil.rmtree(work)
