"""The inorder command as a process, on the bench of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.relay.conftest import Bench

COMMAND = (sys.executable, "-m", "inorder.cli")


class Commands:
    """Commands with settings of their own, in a folder of the test."""

    def __init__(
        self, bench: Bench, folder: Path, *, sections: Mapping[str, Mapping[str, object]] | None = None, **relay: object
    ) -> None:
        self._bench = bench
        self._config = folder / f"{bench.group}.toml"
        self.write(sections=sections, **relay)

    def write(self, *, sections: Mapping[str, Mapping[str, object]] | None = None, **relay: object) -> None:
        """Replaces the file, as a careful editor does; `sections` go over or beside the usual ones."""
        usual: dict[str, Mapping[str, object]] = {
            "kafka": {"bootstrap.servers": self._bench.bootstrap},
            "database": {"url": self._bench.url},
            "relay": {"group": self._bench.group, **relay},
        }
        # A JSON text is a TOML value, as long as it is a string or a number.
        lines = [
            f"[{name}]\n" + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in section.items())
            for name, section in {**usual, **(sections or {})}.items()
        ]
        self.replace_by("\n".join(lines))

    def replace_by(self, text: str) -> None:
        """Another file in its place."""
        fresh = self._config.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.rename(self._config)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(self._line(*arguments), capture_output=True, text=True, timeout=180, check=False)

    def run_bare(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that has no settings."""
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=180, check=False)

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
