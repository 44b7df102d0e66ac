"""The examples of the journal's pages run as they are printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.docs.markdown import blocks, page


def run(name: str, block: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(block, name, "exec"), namespace)  # noqa: S102 - our own page
    return namespace


def examples_of(name: str) -> dict[str, Callable[[], object]]:
    """The functions of a page that are tests."""
    found = [run(name, block) for block in blocks(page(name), "python") if "def test_" in block]
    return {name: function for namespace in found for name, function in namespace.items() if name.startswith("test_")}


def test_the_test_in_the_journal_page_passes() -> None:
    found = examples_of("docs/journal.md")
    assert list(found) == ["test_of_two_openings_one_counts"]
    for test in found.values():
        test()
