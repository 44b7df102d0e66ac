"""What the job `audit` prints, and what it exits with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from inorder.app import App
from inorder.cli.main import app
from inorder.cli.pipeline import audit_line
from inorder.journal.audit.findings import AuditFinding, FindingKind
from tests.unit.cli.conftest import Run
from tests.unit.cli.services import provide

MISSING = AuditFinding(FindingKind.missing_event, "journal", "a", 0, 7, 3, "at 0:7, payload 'x'")


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (MISSING, "missing event: journal:a; seq_nr 3; at 0:7; topic: at 0:7, payload 'x'"),
        (
            AuditFinding(
                FindingKind.wrong_offset, "journal", None, 1, 9, None, "ends before 5", "all is replicated to it"
            ),
            "wrong offset: journal; at 1:9; topic: ends before 5; store: all is replicated to it",
        ),
        (
            AuditFinding(FindingKind.hidden_rows, "journal", "a", 0, None, None, None, "2 rows"),
            "hidden rows: journal:a; at 0:?; store: 2 rows",
        ),
        (AuditFinding(FindingKind.unsettled, "journal", "a"), "journal that kept changing: journal:a"),
    ],
)
def test_a_finding_is_a_line(finding: AuditFinding, line: str) -> None:
    assert audit_line(finding) == line


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of the job; it finds one event missing."""
    asked: list[dict[str, Any]] = []

    def run_audit(_app: App, *, stop: object, on_finding: Any, **narrowed: Any) -> dict[str, Any]:
        asked.append(narrowed)
        on_finding(MISSING)
        return {"journals": 1, "differences": 1}

    provide(monkeypatch, run_audit=run_audit)
    return asked


def test_a_difference_violates_a_guarantee(audited: list[dict[str, Any]], run: Run) -> None:
    ran = run("pipeline", "run", "audit", "--topic", "journal", "--id", "a", "--json")
    assert (ran.code, "differs from its topics in 1 place" in ran.stderr) == (5, True)
    finding, totals = map(json.loads, ran.stdout.splitlines())
    assert (finding["kind"], finding["seq_nr"], finding["offset"]) == ("missing event", 3, 7)
    assert totals == {"journals": 1, "differences": 1}
    assert audited == [{"topic": "journal", "id": "a"}]


def test_other_jobs_are_not_narrowed() -> None:
    ran = CliRunner().invoke(app, ["pipeline", "run", "expire", "--topic", "journal"])
    assert ran.exit_code == 2
    assert "the job expire has no --topic" in ran.output
