"""The workflows call make targets that exist, with the fewest rights; hooks call tools of the lock."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML ships no types

from tests.unit.docs.markdown import ROOT, page

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return loaded


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_is_an_action_or_a_make_target(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    jobs = read(workflow)["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert [command for command in commands if command.removeprefix("make ") not in targets] == []
    assert all(step["uses"].partition("@")[2] for job in jobs for step in job["steps"] if "uses" in step)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_only_the_rights_that_it_names(workflow: Path) -> None:
    found = read(workflow)
    assert found["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in found["jobs"].values())
    assert "secrets." not in workflow.read_text("utf-8")


def test_the_checks_run_on_every_python_that_the_package_names() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "checks.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == re.findall(r'Python :: (3\.\d+)"', page("pyproject.toml"))


def test_the_hooks_call_tools_of_the_lock() -> None:
    [repository] = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        program = Path(hook["entry"].split()[0])
        package = {"lint-imports": "import-linter"}.get(program.name, program.name)
        assert program.parent.as_posix() == ".venv/bin"
        assert re.search(rf"^{package}==", page("requirements.lock"), re.MULTILINE)


@pytest.mark.parametrize(
    "template", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_a_template_has_questions(template: Path) -> None:
    found = read(template)
    assert {"name", "description", "body"} <= found.keys()
    assert all(each["type"] in ("markdown", "textarea", "input") for each in found["body"])
