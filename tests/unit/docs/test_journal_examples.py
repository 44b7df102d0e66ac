"""The examples of the journal's pages run as they are printed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.unit.docs.markdown import blocks, page


def run(name: str, block: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(block, name, "exec", dont_inherit=True), namespace)  # noqa: S102 - our own page
    return namespace


def examples_of(name: str) -> dict[str, Callable[[], object]]:
    """The functions of a page that are tests."""
    found = [run(name, block) for block in blocks(page(name), "python") if "def test_" in block]
    return {name: function for namespace in found for name, function in namespace.items() if name.startswith("test_")}


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("docs/journal.md", ["test_of_two_openings_one_counts"]),
        (
            "docs/entities.md",
            [
                "test_an_account_is_never_overdrawn",
                "test_an_order_is_paid_once",
                "test_events_of_the_first_version_are_still_read",
            ],
        ),
    ],
)
def test_the_tests_in_a_page_pass(name: str, tests: list[str]) -> None:
    found = examples_of(name)
    assert list(found) == tests
    for test in found.values():
        if isinstance(outcome := test(), Coroutine):
            asyncio.run(outcome)
