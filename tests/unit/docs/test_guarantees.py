"""Every test that a page names exists, and every claim names one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, links, page, rows, spans

GUARANTEES = "docs/guarantees.md"


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def named_tests() -> list[str]:
    return [span for span in spans(page(GUARANTEES)) if "::" in span]


def linked_tests() -> list[tuple[str, str]]:
    return [(text.strip("`"), target) for text, target in links(page("README.md")) if target.startswith("tests/")]


@pytest.mark.parametrize("name", sorted(set(named_tests())))
def test_a_test_that_is_named_exists(name: str) -> None:
    file, _, function = name.partition("::")
    assert (ROOT / file).is_file(), f"{GUARANTEES} names {file}"
    assert function in functions(ROOT / file), f"{GUARANTEES} names {name}"


def test_every_claim_is_shown_by_a_test() -> None:
    claims = list(rows(page(GUARANTEES)))
    assert len(claims) > 20
    assert [row[0] for row in claims if "::test_" not in row[-1]] == []


def test_every_guarantee_of_the_readme_links_to_a_test_of_that_name() -> None:
    found = linked_tests()
    assert len(found) >= 7
    for name, file in found:
        assert name in functions(ROOT / file), f"README.md names {name} in {file}"


def test_what_the_readme_promises_is_among_the_guarantees() -> None:
    assert {f"{file}::{name}" for name, file in linked_tests()} <= set(named_tests())
