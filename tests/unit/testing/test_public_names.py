"""What `inorder` and `inorder.testing` export is there, and costs nothing before it is used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import inorder
import inorder.testing
from tests.unit.docs.markdown import page


@pytest.mark.parametrize("module", [inorder, inorder.testing])
def test_every_public_name_is_there_and_no_other(module: object) -> None:
    names = list(module.__all__)  # type: ignore[attr-defined] # both have it
    assert len(names) == len(set(names)) == sum(hasattr(module, name) for name in names)
    assert not hasattr(module, "Nothing")


@pytest.mark.parametrize("name", ["journal", "entities", "projections"])
def test_the_errors_that_the_pages_of_journals_name_are_public(name: str) -> None:
    named = set(re.findall(r"`(\w+Error)`", page(f"docs/{name}.md")))
    assert named - set(inorder.__all__) == set()


def test_importing_inorder_imports_nothing_else() -> None:
    code = "import sys, inorder, inorder.testing; print(*[name for name in sys.modules if name.startswith('inorder')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["inorder", "inorder.testing"]


def test_journals_in_memory_import_no_client_of_a_server() -> None:
    code = "import sys; from inorder.testing import MemoryJournals; MemoryJournals(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"confluent_kafka", "psycopg", "cassandra", "sqlalchemy", "pyspark"} & set(ran.stdout.split())
