"""Alert rules and dashboard: the files are fresh, their PromQL parses, and they use only metrics that are served.

promtool checks the rules where it can be had (`tests/promtool.py`). Everywhere the expressions, those of the dashboard
too, are parsed by `promql-parser`, which implements the grammar of Prometheus 3, and the structure of the rules is
checked as promtool checks it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not worth a dependency for one test
from typer.testing import CliRunner

from inorder.cli.main import app
from inorder.observe import views
from inorder.observe.metrics import RelayCollector
from inorder.operate.watch import PartReading
from inorder.web.backend import WebBackend
from inorder.web.site import _WebCollector
from tests.promtool import find_promtool
from tests.unit.docs.markdown import ROOT
from tests.unit.docs.test_metrics_page import named, served
from tests.unit.observe.test_metrics import FULL

ALERTS = [alert for alerts in views.ALERTS.values() for alert in alerts]
LINES = [
    (f"{panel.title}: {legend}", expression)
    for panels in views.ROWS.values()
    for panel in panels
    for legend, expression in panel.lines.items()
]
EXPRESSIONS = [*((alert.name, alert.when) for alert in ALERTS), *LINES]
_OURS = {"job", "group", "le"}
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_LABEL = re.compile(r"\$labels\.(\w+)")
_DURATION = re.compile(r"\d+[smhd]")


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """Every metric that is served anywhere, with its labels; a histogram also by the names of its series."""
    backend = SimpleNamespace(readings=lambda: {"kafka": PartReading({})})
    web = named(_WebCollector(cast("WebBackend", backend)).collect())
    found = served() | named(RelayCollector(lambda: FULL).collect()) | web
    return found | {f"{name}_bucket": labels for name, labels in found.items()}


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """The metrics that an expression reads; raises for one that Prometheus would refuse."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "5m")), visit)
    return found


def grouped(expression: str) -> set[str]:
    """The labels that aggregations keep."""
    return {name for names in re.findall(r"by \(([\w, ]+)\)", expression) for name in names.split(", ")}


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_an_expression_parses_and_reads_metrics_and_labels_that_are_served(
    name: str, expression: str, metrics: dict[str, set[str]]
) -> None:
    read = selectors(expression)
    assert read, name
    for selector in read:
        assert selector.name in metrics, f"{name} reads {selector.name}, which nothing serves"
        known = metrics[selector.name] | _OURS
        assert {matcher.name for matcher in selector.matchers.matchers} <= known
        assert grouped(expression) <= known


@pytest.mark.parametrize("expression", ["max by (group (x)", "rate(x)", "sum(x[5m])", "x == "])
def test_the_parser_refuses_what_prometheus_refuses(expression: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        selectors(expression)


def test_the_rules_have_the_fields_of_prometheus_and_no_other() -> None:
    document = yaml.safe_load(views.rules())
    assert set(document) == {"groups"}
    names = [group["name"] for group in document["groups"]]
    assert len(set(names)) == len(names)
    for group in document["groups"]:
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
            assert _DURATION.fullmatch(rule.get("for", "1m"))
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert all(isinstance(text, str) for text in rule["annotations"].values())
    written = [rule["alert"] for group in document["groups"] for rule in group["rules"]]
    assert written == [alert.name for alert in ALERTS]
    assert len(set(written)) == len(written)


@pytest.mark.full
def test_promtool_accepts_the_rules_and_refuses_broken_ones(tmp_path: Path) -> None:
    """Where there is no promtool, the parser above has the last word."""

    def is_accepted(rules: str) -> bool:
        file = tmp_path / "rules.yml"
        file.write_text(rules, "utf-8")
        program = find_promtool()
        if program is None:
            expressions = [rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
            return all(_parses(expression) for expression in expressions)
        done = subprocess.run([program, "check", "rules", file], capture_output=True, timeout=120, check=False)
        return done.returncode == 0

    written = (ROOT / "deploy/prometheus/inorder.rules.yml").read_text("utf-8")
    assert is_accepted(written)
    assert not is_accepted(written.replace("max by (group) (", "max by (group ("))


def _parses(expression: str) -> bool:
    try:
        selectors(expression)
    except ValueError:
        return False
    return True


def texts() -> Iterator[tuple[str, str, re.Pattern[str], str]]:
    yield from ((alert.name, alert.summary + alert.action, _LABEL, alert.when) for alert in ALERTS)
    yield from ((title, title, _LEGEND, expression) for title, expression in LINES)


def test_texts_name_only_labels_that_the_expression_keeps(metrics: dict[str, set[str]]) -> None:
    for name, text, pattern, expression in texts():
        kept = grouped(expression) or metrics[str(selectors(expression)[0].name)]
        assert set(pattern.findall(text)) <= kept, name


def test_the_panels_of_the_dashboard_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = json.loads(views.dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize(("command", "name"), [("rules", views.RULES_FILE), ("dashboard", views.DASHBOARD_FILE)])
def test_the_files_are_fresh_and_a_command_prints_them(command: str, name: str) -> None:
    text = (ROOT / "deploy" / name).read_text("utf-8")
    assert text == views.files()[name], "run `make docs` and commit the files"
    assert CliRunner().invoke(app, ["observe", command]).stdout == text
