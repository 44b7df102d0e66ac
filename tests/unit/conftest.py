"""What unit tests of several rooms need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder and no INORDER_ variable."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("INORDER_")]:
        monkeypatch.delenv(name)
