"""The command line inside the test process, with what it printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from inorder.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder and no INORDER_ variable."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("INORDER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `inorder …` through its one error boundary."""

    def run_command(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["inorder", *arguments])
        try:
            code: object = main()
        except SystemExit as ended:
            code = ended.code or 0
        assert isinstance(code, int)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run_command
