"""Settings tests see no file and no variable but their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder and no INORDER_ variable."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("INORDER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes inorder.toml into the current folder."""

    def write_text(text: str) -> Path:
        file = tmp_path / "inorder.toml"
        file.write_text(text, "utf-8")
        return file

    return write_text
