"""The generated pages are fresh and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.cli.reference import pages, write
from inorder.settings.root import Settings
from inorder.settings.sources import field_at, known_keys, section_of

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", ["cli.md", "errors.md", "logs.md", "settings.md"])
def test_the_generated_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == pages()[name], "run `make docs` and commit the pages"


def test_every_page_is_written(tmp_path: Path) -> None:
    write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(pages())


def test_the_settings_page_tells_every_key_with_default_and_variable() -> None:
    page = pages()["settings.md"]
    fields = [path for path in known_keys(Settings) if len(path) > 1 and not _is_section(path)]
    assert fields
    for path in fields:
        assert f"### {'.'.join(path)}\n" in page
        assert f"- Variable: `INORDER_{'__'.join(path).upper()}`" in page


def _is_section(path: tuple[str, ...]) -> bool:
    field = field_at(Settings, path)
    return field is not None and section_of(field.annotation) is not None


def test_every_field_is_described() -> None:
    def undescribed(model: type[Settings] | None, prefix: str = "") -> list[str]:
        assert model is not None
        found = []
        for name, field in model.model_fields.items():
            inner = section_of(field.annotation)
            if inner:
                found += undescribed(inner, f"{prefix}{name}.")  # type: ignore[arg-type]  # any section will do
            elif prefix and not field.description:
                found.append(prefix + name)
        return found

    assert undescribed(Settings) == []


def test_the_errors_page_has_every_code_once() -> None:
    codes = [line.split("`")[1] for line in pages()["errors.md"].splitlines() if line.startswith("| `")]
    assert len(codes) == len(set(codes))
    assert {"CONFIG-001", "TRANSIENT-002", "GUARANTEE-001"} <= set(codes)


def test_the_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pages()
    monkeypatch.setenv("COLUMNS", "40")
    assert pages() == before
