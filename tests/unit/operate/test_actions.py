"""The log of actions, opened by the first of several threads that need it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inorder.database.database import open_database, statements_of
from inorder.operate import actions
from inorder.operate.actions import ActionLog, Actor


def test_no_thread_finds_the_log_open_before_its_statements_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look_and_read(*asked: Any) -> Any:
        seen.append(log._opened is not None)
        return statements_of(*asked)

    monkeypatch.setattr(actions, "statements_of", look_and_read)
    with closing(open_database(f"sqlite:///{tmp_path / 'test.db'}", "test")) as database:
        log = ActionLog(lambda: database, Actor("ann", "page"))
        assert log.page() == []
    assert seen
    assert not any(seen)
