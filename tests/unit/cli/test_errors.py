"""One boundary turns every error into a sentence on stderr and an exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inorder.cli import inspect
from inorder.model.errors import (
    ConfigurationError,
    FencedError,
    GuaranteeError,
    InorderError,
    PermanentError,
    UnreachableError,
    ValidationError,
)
from tests.unit.cli.conftest import Run


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `inorder config show` raise."""

    def load(_config: Path | None) -> None:
        raise error

    monkeypatch.setattr(inspect, "load", load)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("It is wrong.", hint="Mend it."), 3),
        (ValidationError("topic", "is empty", hint="Name one."), 3),
        (UnreachableError("It is not there.", hint="Start it."), 4),
        (GuaranteeError("One was lost.", hint="Tell us."), 5),
        (FencedError("Another has it.", hint="Wait."), 1),
        (PermanentError("It cannot be.", hint="Leave it."), 1),
    ],
)
def test_an_error_becomes_its_exit_code_and_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: InorderError, code: int
) -> None:
    failing_with(error, monkeypatch)
    ran = run("config", "show")
    assert ran.code == code
    assert ran.stdout == ""
    assert ran.stderr == f"error {error.code}: {error.message}\n{error.hint}\n"


def test_the_traceback_is_shown_on_demand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(ConfigurationError("It is wrong."), monkeypatch)
    monkeypatch.setenv("INORDER_TRACEBACK", "1")
    ran = run("config", "show")
    assert ran.code == 3
    assert "Traceback (most recent call last)" in ran.stderr


def test_an_unexpected_error_is_a_sentence_and_a_file_with_the_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing_with(RuntimeError("boom"), monkeypatch)
    ran = run("config", "show")
    assert ran.code == 1
    assert "error: unexpected RuntimeError: boom" in ran.stderr
    assert "Traceback" not in ran.stderr
    found = re.search(r"Its traceback is in (.+)\.$", ran.stderr, re.MULTILINE)
    assert found
    assert "RuntimeError: boom" in Path(found.group(1)).read_text("utf-8")


@pytest.mark.parametrize("shows", ["0", "1"])
@pytest.mark.parametrize("kind", [ConfigurationError, RuntimeError])
def test_no_traceback_shows_a_secret(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Exception], shows: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("INORDER_TRACEBACK", shows)
    error = kind("It is wrong at postgresql+psycopg://shop:***@db/shop.")
    error.__cause__ = OSError("no answer of postgresql+psycopg://shop:hunter2@db/shop")
    if kind is RuntimeError:
        error.args = ("It is wrong at postgresql+psycopg://shop:hunter2@db/shop.",)
    failing_with(error, monkeypatch)
    ran = run("config", "show")
    written = "".join(file.read_text("utf-8") for file in tmp_path.glob("inorder-*.log"))
    assert "hunter2" not in ran.stderr + written
    assert "It is wrong at postgresql+psycopg://shop:***@db/shop." in ran.stderr
    assert ("no answer of" in ran.stderr + written) is (shows == "1" or kind is RuntimeError)


def test_where_no_file_can_be_written_the_way_to_the_traceback_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    failing_with(RuntimeError("boom"), monkeypatch)
    assert "Run it again with INORDER_TRACEBACK=1" in run("config", "show").stderr


def test_ctrl_c_of_a_command_that_is_no_service_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(KeyboardInterrupt(), monkeypatch)
    assert run("config", "show").code == 130


@pytest.mark.parametrize("arguments", [(), ("bogus",), ("relay", "fly"), ("demo", "--events", "0"), ("--bogus",)])
def test_wrong_usage_ends_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2
