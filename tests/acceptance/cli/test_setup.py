"""scripts/setup, which make calls first: what is missing is one sentence and 4; half a set-up is redone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

Setup = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the script and a lock of nothing, so that nothing is downloaded."""
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", folder / "scripts" / "setup")
    (folder / "requirements.lock").write_text("", "utf-8")
    return folder


@pytest.fixture
def setup(project: Path, tmp_path: Path) -> Setup:
    """Runs the script; programs of the test's `bin` folder come first on the PATH."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
        }
        # A registry that refuses at once: the tests of this file never leave the machine.
        environment |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1", **variables}
        return subprocess.run(
            [project / "scripts" / "setup", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a small shell program on the PATH."""

    def make(name: str, body: str) -> Path:
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        file.chmod(0o755)
        return file

    return make


Program = Callable[[str, str], Path]


def sentences(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """What the script itself said."""
    return [line for line in ran.stderr.splitlines() if line.startswith("setup: ")]


def test_a_missing_python_is_one_sentence_and_4(setup: Setup) -> None:
    ran = setup(PYTHON="no-such-python")
    assert ran.returncode == 4
    assert len(sentences(ran)) == 1
    assert "Python 3.11 or newer is needed, and no-such-python was not found" in ran.stderr


def test_an_old_python_is_one_sentence_and_4(setup: Setup, program: Program) -> None:
    old = program("old-python", 'if [ "$1" = -V ]; then echo Python 3.9.2; exit 0; fi\nexit 1')
    ran = setup(PYTHON=str(old))
    assert ran.returncode == 4
    assert "is Python 3.9.2" in sentences(ran)[0]


def test_a_python_without_venv_is_one_sentence_and_4(setup: Setup, program: Program) -> None:
    bare = program("bare-python", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"')
    ran = setup(PYTHON=str(bare))
    assert ran.returncode == 4
    assert "has no venv module" in sentences(ran)[0]


@pytest.mark.parametrize(
    ("banner", "code"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 0),
        ('openjdk version "21" 2023-09-19', 0),
        ('java version "1.8.0_401"', 4),
        ('openjdk version "11.0.2" 2019-01-15', 4),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 4),
    ],
)
def test_java_is_judged_by_its_version(setup: Setup, program: Program, banner: str, code: int) -> None:
    java = program("java", f'cat >&2 <<"END"\n{banner}\nEND')
    home = java.parent.parent
    for variables in ({"JAVA_HOME": ""}, {"JAVA_HOME": str(home)}):
        ran = setup("java", **variables)
        assert ran.returncode == code, ran.stderr
        assert len(sentences(ran)) == (1 if code else 0)


def test_a_missing_java_is_one_sentence_and_4(setup: Setup, tmp_path: Path) -> None:
    ran = setup("java", JAVA_HOME=str(tmp_path))
    assert ran.returncode == 4
    assert "Java 17 or newer is needed" in sentences(ran)[0]


def test_a_full_disk_is_one_sentence_and_4(setup: Setup, program: Program, project: Path) -> None:
    program("df", "echo header; echo /dev/x 100 100 2048 100% /")
    ran = setup()
    assert ran.returncode == 4
    assert "3000 MB of disk are needed here, and 2 MB are free" in sentences(ran)[0]
    assert not (project / ".venv").exists()


@pytest.mark.full
def test_an_unreachable_registry_is_4_and_the_next_run_begins_anew(setup: Setup, project: Path) -> None:
    (project / "requirements.lock").write_text(f"nothing==1.0 --hash=sha256:{'0' * 64}\n", "utf-8")
    ran = setup()
    assert ran.returncode == 4
    assert "most often the package registry cannot be reached" in sentences(ran)[-1]
    assert (project / ".venv" / ".setting-up").exists()
    assert not (project / ".venv" / ".ready").exists()
    (project / ".venv" / "left-over").touch()
    setup()
    assert not (project / ".venv" / "left-over").exists()
