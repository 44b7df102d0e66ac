"""The inorder command as a process, on the bench of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.relay.conftest import Bench

COMMAND = (sys.executable, "-m", "inorder.cli")


class Commands:
    """Commands with settings of their own, in a folder of the test."""

    def __init__(self, bench: Bench, folder: Path, **relay: object) -> None:
        sections: dict[str, dict[str, object]] = {
            "kafka": {"bootstrap.servers": bench.bootstrap},
            "database": {"url": bench.url},
            "relay": {"group": bench.group, **relay},
        }
        self._config = folder / f"{bench.group}.toml"
        # A JSON text is a TOML value, as long as it is a string or a number.
        lines = [
            f"[{name}]\n" + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in section.items())
            for name, section in sections.items()
        ]
        self._config.write_text("\n".join(lines), "utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(self._line(*arguments), capture_output=True, text=True, timeout=90, check=False)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A service; one that outlives the block is killed."""
        with subprocess.Popen(self._line(*arguments), stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def _line(self, *arguments: str) -> list[str]:
        return [*COMMAND, *arguments, "--config", str(self._config)]


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Reads what the process says up to and with these words; fails if it ends without them."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"{words!r} was never said, but: {said}")
