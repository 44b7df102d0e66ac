"""docs/architecture.md describes the code on disk: the tree, the order of the layers, and the files of the walk."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.unit.docs.markdown import ROOT, blocks, page, rows

PAGE = "docs/architecture.md"
SOURCE = ROOT / "src" / "inorder"
_ENTRY = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>[\w.]+)/?\s+(?P<about>\S.*)$")


def drawn() -> list[str]:
    [tree] = [block for block in blocks(page(PAGE), "text") if block.startswith("src/inorder/")]
    above: list[str] = []
    found = []
    for line in tree.splitlines()[1:]:
        entry = _ENTRY.match(line)
        assert entry is not None, f"not an entry with a line about it: {line!r}"
        del above[len(entry["indent"]) // 4 :]
        above.append(entry["name"])
        found.append("/".join(above))
    return found


def on_disk() -> set[str]:
    packages = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")} - {"."}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py"}
    return packages | modules


def layers() -> list[set[str]]:
    """The layers of import-linter, the lowest first; rooms of one layer do not import each other."""
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    [found] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [{name.strip() for name in layer.split("|")} for layer in reversed(found)]


def test_every_room_is_drawn_and_nothing_else() -> None:
    assert set(drawn()) == on_disk()


def test_no_room_is_drawn_twice() -> None:
    assert len(drawn()) == len(set(drawn()))


def test_the_tree_has_the_order_of_the_layers() -> None:
    place = {name: index for index, layer in enumerate(layers()) for name in layer}
    rooms = [name.removesuffix(".py") for name in drawn() if "/" not in name]
    assert [place[name] for name in rooms] == sorted(place[name] for name in rooms)


@pytest.mark.parametrize(("walk", "most"), [("One published message", 6), ("One drained batch", 10), ("One slice", 10)])
def test_a_walk_names_files_that_exist_and_stays_short(walk: str, most: int) -> None:
    text = page(PAGE).partition(f"**{walk}**")[2].partition("**One ")[0].partition("\n## ")[0]
    files = [row[1].strip("`") for row in rows(text) if len(row) == 3]
    assert 0 < len(files) <= most
    assert [file for file in files if not (SOURCE / file).is_file()] == []
