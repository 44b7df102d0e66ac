"""Runs the commands of a page as a reader would who pastes them, one block after the other, in an empty folder.

A comment before a block says what is special about it:

| comment             | the block                                                                             |
|---|---|
| `<!-- by hand -->`  | prepares the reader's machine; not run here                                           |
| `<!-- file: X -->`  | is saved as X                                                                         |
| `<!-- stays: T -->` | has a terminal of its own, and runs on; the next block is pasted once it has printed T |
| `<!-- again -->`    | only reads, and is pasted again until it prints what the page says                    |

A block of `text` after commands is what they print; a line `…` stands for any lines, `…` inside a line for any text.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.conftest import Eventually

BASH = shutil.which("bash") or "/bin/bash"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, and the comment before it."""

    note: str
    language: str
    body: str


def blocks_of(text: str) -> list[Block]:
    """All blocks with a language, in order."""
    return [Block(found["note"] or "", found["language"], found["body"]) for found in _BLOCK.finditer(text)]


def files_of(text: str) -> dict[str, str]:
    """The files that the page has its reader save."""
    named = [(block.note.removeprefix("file: "), block.body) for block in blocks_of(text) if "file: " in block.note]
    return dict(named)


def follow(text: str, folder: Path, environment: dict[str, str], eventually: Eventually) -> None:
    """Does what the page says; fails at the first command that fails or prints something else."""
    printed = ""
    blocks = blocks_of(text)
    with ExitStack() as terminals:
        for number, block in enumerate(blocks):
            if block.note.startswith("file: "):
                (folder / block.note.removeprefix("file: ")).write_text(block.body, "utf-8")
            elif block.note.startswith("stays: "):
                log = folder / f"terminal-{number}.log"
                terminals.enter_context(_terminal(block, log, folder, environment, eventually))
            elif block.note == "again":
                eventually(partial(_prints, blocks[number + 1].body, block.body, folder, environment))
            elif block.language == "sh" and block.note != "by hand":
                printed = _paste(block.body, folder, environment)
            elif block.language == "text" and blocks[number - 1].note != "again":
                assert _agrees(block.body, printed), f"{block.body}\n--- printed:\n{printed}"


def _agrees(expected: str, printed: str) -> bool:
    lines = [".*" if line == "…" else re.escape(line).replace("…", "[^\n]*") for line in expected.splitlines()]
    return re.search(r"\s*".join(lines), printed, re.DOTALL) is not None


def _prints(expected: str, commands: str, folder: Path, environment: dict[str, str]) -> bool:
    return _agrees(expected, _paste(commands, folder, environment))


def _paste(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """Each command must succeed; what they print for programs, without messages for people."""
    ran = subprocess.run(
        [BASH, "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, f"{commands}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@contextmanager
def _terminal(
    block: Block, log: Path, folder: Path, environment: dict[str, str], eventually: Eventually
) -> Iterator[None]:
    """A terminal in which a program runs until Ctrl-C, which reaches all processes of the terminal."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            [BASH, "-c", block.body],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    awaited = block.note.removeprefix("stays: ")
    try:
        eventually(lambda: awaited in log.read_text(errors="replace") or _ended(running, log), timeout=120)
        yield
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)
        try:
            running.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            raise


def _ended(running: subprocess.Popen[bytes], log: Path) -> bool:
    assert running.poll() is None, log.read_text(errors="replace")
    return False


def reader_environment(source: Path) -> dict[str, str]:
    """The environment of a reader: no settings of ours, and the programs of this Python first on the PATH."""
    kept = {name: text for name, text in os.environ.items() if "__" not in name or not name.startswith("INORDER_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"}
