"""The command line inside the test process, with what it printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

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
def _in_an_empty_place(empty_place: None) -> None:
    """Every test here."""


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
