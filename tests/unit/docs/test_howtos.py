"""The settings on the pages of how-tos are valid, and their Python compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.settings import Settings
from tests.unit.docs.markdown import WRITTEN, blocks, page

HOWTOS = [name for name in WRITTEN if name.startswith("docs/howto/")]


@pytest.mark.parametrize("name", HOWTOS)
def test_the_settings_of_a_how_to_are_valid(name: str, tmp_path: Path) -> None:
    for block in blocks(page(name), "toml"):
        file = tmp_path / "inorder.toml"
        file.write_text(block, "utf-8")
        Settings.load(file)


@pytest.mark.parametrize("name", HOWTOS)
def test_the_python_of_a_how_to_compiles(name: str) -> None:
    for block in blocks(page(name), "python"):
        compile(block, name, "exec")
