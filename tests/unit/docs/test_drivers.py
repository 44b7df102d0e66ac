"""Drivers are imported only by modules that are named for it, so that decisions stay free of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT

SOURCE = ROOT / "src" / "inorder"
DRIVERS = ("psycopg", "pymysql", "sqlite3", "cassandra", "redis", "confluent_kafka", "pyspark", "py4j", "sqlalchemy")
NAMED_FOR_IT = re.compile(r"(database|kafka|engines|embedded|bench)/|\w+/stores/|.*(_store|formats|on_spark)\.py$")
EXCEPTIONS = {
    "demo/load.py": "the demo's application, which uses psycopg as an application does",
    "operate/doctor_databases.py": "the doctor examines the drivers' connections themselves",
    "outbox/append.py": "publishing accepts the connection of any driver, and looks at what it was given",
    "outbox/outbox.py": "the same",
    "playground.py": "creates databases of the embedded server",
}


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
        yield from imports_of(node)


def drivers_of(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports_of(ast.parse(path.read_text("utf-8")))} & set(DRIVERS)


MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize(
    "module", [name for name in MODULES if not NAMED_FOR_IT.match(name) and name not in EXCEPTIONS]
)
def test_a_module_that_is_not_named_for_it_imports_no_driver(module: str) -> None:
    assert drivers_of(SOURCE / module) == set()


def test_every_exception_is_still_needed() -> None:
    assert {name for name in EXCEPTIONS if not drivers_of(SOURCE / name)} == set()
