"""Settings tests see no file and no variable but their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _in_an_empty_place(empty_place: None) -> None:
    """Every test here."""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes inorder.toml into the current folder."""

    def write_text(text: str) -> Path:
        file = tmp_path / "inorder.toml"
        file.write_text(text, "utf-8")
        return file

    return write_text
