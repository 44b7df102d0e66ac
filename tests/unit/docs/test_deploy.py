"""The files in deploy/ name commands, options, settings and endpoints that exist, and run as users without rights."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]  # PyYAML ships no types

from inorder.cli.main import app
from inorder.settings import Settings
from inorder.settings.sources import known_keys
from tests.unit.docs.markdown import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")


def check_command(words: list[str]) -> None:
    """Each word is a command, or an option or argument of the last one."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert not getattr(command, "commands", {}), words
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options


def check_variables(text: str) -> None:
    keys = {".".join(path) for path in known_keys(Settings)}
    for name in set(re.findall(r"INORDER_([A-Z]+__[A-Z_]+)", text)):
        key = name.lower().replace("__", ".")
        assert key in keys or key.startswith("kafka."), name


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_an_existing_command_as_a_user_without_rights(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    parser.read_string(unit.read_text("utf-8"))
    service = parser["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/inorder")
    check_command(words)
    assert (service["DynamicUser"], service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "yes", "strict")
    assert service["RestartPreventExitStatus"] == "3"
    assert int(service["TimeoutStopSec"]) > Settings().relay.stop_seconds
    assert parser["Install"]["WantedBy"] == "multi-user.target"


def test_the_base_lists_all_manifests_and_its_settings_are_valid() -> None:
    [base] = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert sorted(base["resources"]) == [path.name for path in MANIFESTS]
    [generated] = base["configMapGenerator"]
    settings = Settings.load(DEPLOY / "kubernetes" / generated["files"][0])
    assert settings.health.listen
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    assert [image["newTag"] for image in base["images"]] == [version[1]]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_runs_an_existing_command_without_root(manifest: Path) -> None:
    check_variables(manifest.read_text("utf-8"))
    [deployment] = [each for each in documents(manifest) if each["kind"] == "Deployment"]
    selected = deployment["spec"]["selector"]["matchLabels"]
    template = deployment["spec"]["template"]
    assert selected.items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert pod["terminationGracePeriodSeconds"] > Settings().relay.stop_seconds
    [container] = pod["containers"]
    check_command(container["args"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_what_selects_pods_selects_those_of_its_manifest(manifest: Path) -> None:
    [deployment] = [each for each in documents(manifest) if each["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for other in documents(manifest):
        if other["kind"] != "Deployment":
            selector = other["spec"]["selector"]
            assert selector.get("matchLabels", selector).items() <= labels.items()


def test_the_image_runs_the_relay_without_root() -> None:
    text = (DEPLOY / "container" / "Dockerfile").read_text("utf-8")
    check_variables(text)
    [user] = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    assert int(user) > 0
    [command] = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    check_command(yaml.safe_load(command))
