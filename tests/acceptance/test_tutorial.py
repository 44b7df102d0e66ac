"""A newcomer who pastes the commands of our first pages, without an edit, has what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.pages import files_of, follow, reader_environment
from tests.conftest import Eventually
from tests.unit.docs.markdown import ROOT, page


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_tutorial_works_as_it_is_pasted(tmp_path: Path, eventually: Eventually) -> None:
    follow(page("docs/tutorial.md"), tmp_path, reader_environment(ROOT / "src"), eventually)


@pytest.mark.full
def test_the_quick_start_works_as_it_is_pasted(tmp_path: Path, eventually: Eventually) -> None:
    follow(page("docs/quickstart.md"), tmp_path, reader_environment(ROOT / "src"), eventually)


@pytest.mark.parametrize("name", ["tutorial", "quickstart"])
def test_the_files_of_the_pages_are_the_examples(name: str) -> None:
    folder = ROOT / "examples" / name
    examples = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.is_file()}
    assert files_of(page(f"docs/{name}.md")) == examples
