"""The inorder command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import inorder.cli

SOURCE = Path(inorder.cli.__file__).parents[2]
COMMAND = [sys.executable, "-m", "inorder.cli"]

Inorder = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment() -> dict[str, str]:
    """Our environment without settings in it; the cache of downloads stays."""
    kept = {name: text for name, text in os.environ.items() if "__" not in name or not name.startswith("INORDER_")}
    return {**kept, "PYTHONPATH": str(SOURCE), "INORDER_KAFKA__ALLOW_AUTO_CREATE_TOPICS": "true"}


@pytest.fixture
def inorder_command(tmp_path: Path, environment: dict[str, str]) -> Inorder:
    """Runs `inorder …` in an empty folder, with variables given as keywords."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**environment, **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run
