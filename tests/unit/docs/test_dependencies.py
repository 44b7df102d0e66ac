"""scripts/dependencies.py: NOTICE and the bill of materials are those of the lock; the audit finds what is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.docs.markdown import ROOT, page

LOCK = """\
one==1.4.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
two==2.0 ; sys_platform == 'nowhere' \\
    --hash=sha256:cc
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dependencies", ROOT / "scripts" / "dependencies.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads(page("pyproject.toml"))["project"]
    return read


def test_notice_has_the_versions_of_the_lock(script: ModuleType) -> None:
    locked: dict[str, list[str]] = {}
    for each in script.read_lock(page("requirements.lock")):
        locked.setdefault(each.name, []).append(each.version)
    listed = dict(re.findall(r"^([a-z0-9-]+) (\d[^:]*): \S", page("NOTICE"), re.MULTILINE))
    assert listed == {name: ", ".join(locked[name]) for name in listed}, "run `make notice`"


def test_notice_names_all_that_an_installation_requires(script: ModuleType, project: dict[str, Any]) -> None:
    names = {re.split(r"[\[><=]", text)[0] for text in script.declared(project)}
    assert names <= set(re.findall(r"^([a-z0-9-]+) \d", page("NOTICE"), re.MULTILINE)), "run `make notice`"


def test_the_bill_of_materials_has_every_package_once_with_its_hashes(
    script: ModuleType, project: dict[str, Any]
) -> None:
    text = page("requirements.lock")
    bill = script.bill(text, project)
    assert bill == script.bill(text, project)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references)) == len(re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE))
    assert all(component["hashes"] for component in bill["components"])
    scopes = {component["name"]: component["scope"] for component in bill["components"]}
    assert (scopes["psycopg"], scopes["pyspark"], scopes["pytest"]) == ("required", "optional", "excluded")
    json.dumps(bill)


def test_a_lock_is_read_with_markers_and_hashes(script: ModuleType) -> None:
    one, two = script.read_lock(LOCK)
    assert (one.name, one.version, one.hashes, one.fits_here) == ("one", "1.4.0", ("aa", "bb"), True)
    assert (two.version, two.fits_here) == ("2.0", False)


def test_the_lock_passes_the_audit(script: ModuleType, project: dict[str, Any]) -> None:
    found = script.audit(script.read_lock(page("requirements.lock")), project, None)
    # What is installed here is not that of the lock while a dependency is being changed.
    assert [line for line in found if "is installed, and the lock has" not in line] == []


def test_the_audit_finds_what_is_missing_in_a_lock(script: ModuleType) -> None:
    project = {"dependencies": ["one>=2", "three"], "optional-dependencies": {}}
    found = script.audit(script.read_lock("one==1.4.0"), project, None)
    assert found == [
        "one 1.4.0 has no hash in the lock.",
        "pyproject.toml requires one>=2, and the lock has 1.4.0.",
        "pyproject.toml requires three, and the lock has none.",
    ]


def ranges(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    ("affected", "is_named"),
    [
        ({"versions": ["1.4.0"]}, True),
        ({"versions": ["1.3.9"]}, False),
        (ranges({"introduced": "0"}, {"fixed": "1.4.1"}), True),
        (ranges({"introduced": "0"}, {"fixed": "1.4.0"}), False),
        (ranges({"introduced": "1.5"}), False),
        (ranges({"introduced": "0"}, {"last_affected": "1.4.0"}), True),
        (ranges({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.2"}, {"fixed": "2"}), True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_the_audit_names_versions_with_an_advisory(
    script: ModuleType, tmp_path: Path, affected: dict[str, Any], is_named: bool
) -> None:
    package = {"package": {"ecosystem": "PyPI", "name": "One"}}
    advisory = {"id": "X-1", "summary": "it leaks", "affected": [package | affected]}
    (tmp_path / "X-1.json").write_text(json.dumps(advisory))
    lock = script.read_lock(LOCK)
    found = [line for each in script.read_advisories(tmp_path) for line in script.matches(each, lock)]
    assert found == (["one 1.4.0: X-1, it leaks"] if is_named else [])
    assert list(script.matches(advisory | {"withdrawn": "2026-01-01T00:00:00Z"}, lock)) == []
