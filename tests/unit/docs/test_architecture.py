"""The tree in docs/architecture.md is the tree on disk."""

from __future__ import annotations

import re

from tests.unit.docs.markdown import ROOT, blocks, page

SOURCE = ROOT / "src" / "inorder"
_ENTRY = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>[\w.]+)/?\s+(?P<about>\S.*)$")


def drawn() -> list[str]:
    [tree] = [block for block in blocks(page("docs/architecture.md"), "text") if block.startswith("src/inorder/")]
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


def test_every_room_is_drawn_and_nothing_else() -> None:
    assert set(drawn()) == on_disk()


def test_no_room_is_drawn_twice() -> None:
    assert len(drawn()) == len(set(drawn()))
