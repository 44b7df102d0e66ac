"""What an operator pauses stays paused until it is resumed, in every database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inorder.database.database import Database
from inorder.topics.pauses import NO_PAUSES, PauseKind, SqlPauses
from tests.selection import few


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "mariadb", "sqlite"))
def database(request: pytest.FixtureRequest, database_of: Callable[[str], Database]) -> Database:
    return database_of(request.getfixturevalue(f"{request.param}_url"))


def test_nothing_is_paused_where_the_table_is_missing(database: Database) -> None:
    assert SqlPauses(database).read() == NO_PAUSES


def test_a_pause_is_read_by_others_and_the_later_reason_counts(database: Database) -> None:
    mine, other = SqlPauses(database), SqlPauses(database)
    assert other.read() == NO_PAUSES
    mine.pause(PauseKind.TOPIC, "orders", reason="a first reason", by="ann")
    mine.pause(PauseKind.TOPIC, "orders", reason="an incident; it's 50 % over", by="bob")
    mine.pause(PauseKind.TABLE, "orders", reason="a vacuum", by="ann")
    found = other.read()
    assert [(row.kind, row.name, row.reason, row.paused_by) for row in found.rows] == [
        (PauseKind.TABLE, "orders", "a vacuum", "ann"),
        (PauseKind.TOPIC, "orders", "an incident; it's 50 % over", "bob"),
    ]
    assert all(row.paused_at.startswith("20") for row in found.rows)
    assert list(found.topics) == ["orders"], "names compare letter by letter"


def test_one_resume_ends_a_pause_and_no_other(database: Database) -> None:
    pauses = SqlPauses(database)
    pauses.pause(PauseKind.TABLE, "orders", reason="a vacuum", by="ann")
    pauses.pause(PauseKind.PIPELINE, "upsert", reason="a restore", by="ann")
    assert not pauses.resume(PauseKind.TOPIC, "orders")
    assert pauses.resume(PauseKind.PIPELINE, "upsert")
    assert not pauses.resume(PauseKind.PIPELINE, "upsert")
    found = pauses.read()
    assert found.of_table("upsert", "orders") is not None
    assert found.of_table("upsert", "payments") is None


def test_a_paused_job_pauses_all_its_tables(database: Database) -> None:
    pauses = SqlPauses(database)
    pauses.pause(PauseKind.PIPELINE, "upsert", reason="a restore", by="ann")
    found = pauses.read().of_table("upsert", "orders")
    assert found is not None
    assert str(found).startswith("a restore (ann, 20")
