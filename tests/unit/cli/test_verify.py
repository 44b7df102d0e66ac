"""`inorder verify run` shows and keeps what it saw, even if it ends with an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inorder.model.errors import UnreachableError
from inorder.verify.history import CommitAnswer, MarkedEvent, Operation, RecordRead, TransactionBegun, TransactionEnded
from inorder.verify.run import VerifyRun
from tests.unit.cli.conftest import Run

EVENT = MarkedEvent("a", 1)
ONCE = [TransactionBegun(1, (EVENT,)), TransactionEnded(1, CommitAnswer.COMMITTED), RecordRead(EVENT, 0, 0)]
TWICE = [*ONCE, RecordRead(EVENT, 0, 1)]


@pytest.mark.parametrize(("seen", "verdict", "code"), [(ONCE, "ok", 4), (TWICE, "failed", 5)])
def test_the_verdict_and_the_history_come_before_the_error_of_the_clean_up(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: list[Operation], verdict: str, code: int
) -> None:
    def execute(verification: VerifyRun) -> None:
        verification._operations.extend(seen)
        raise UnreachableError("Rows of this verification may be left.")

    monkeypatch.setattr(VerifyRun, "execute", execute)
    monkeypatch.setenv("INORDER_DATABASE__URL", "postgresql+psycopg://localhost/none")
    monkeypatch.setenv("INORDER_KAFKA", json.dumps({"bootstrap.servers": "localhost:1"}))
    kept = tmp_path / "history"
    ran = run("verify", "run", "--json", "--history", str(kept))
    assert json.loads(ran.stdout)["verdict"] == verdict, ran.stderr
    assert ran.code == code
    assert "Rows of this verification may be left." in ran.stderr
    assert len(kept.read_text("utf-8").splitlines()) == 1 + len(seen)
