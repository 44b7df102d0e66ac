"""`inorder schema plan` shows what `inorder schema install` then does, and nothing once it is done."""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

import inorder
from inorder.app import App
from inorder.cli.main import main
from inorder.database.database import open_database
from inorder.embedded import Cassandra
from inorder.journal.stores.cassandra_session import CassandraSession
from tests.selection import few


@pytest.mark.parametrize("layout", few(["native", "trendyol", "table"], "native", "table"))
def test_an_installation_does_what_was_planned_and_then_nothing_is_to_do(database_url: str, layout: str) -> None:
    with App(inorder.Settings.load(None, database={"url": database_url})) as app:
        planned = app.plan_schema(layout)
        assert [change.kind for change in planned if change.kind == "columns"] == []
        assert planned != []
        assert app.plan_schema(layout) == planned, "a plan changes nothing"
        assert app.install_schema(layout) == planned
        assert app.plan_schema(layout) == []
        assert app.install_schema(layout) == []


OLD_POINTER = """
CREATE TABLE inorder_pointer (
    pipeline VARCHAR(255) NOT NULL, topic VARCHAR(249) NOT NULL, {partition} INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0, next_offset BIGINT NOT NULL, records_applied BIGINT NOT NULL DEFAULT 0,
    records_identical BIGINT NOT NULL DEFAULT 0, records_stale BIGINT NOT NULL DEFAULT 0,
    records_ignored BIGINT NOT NULL DEFAULT 0, records_rejected BIGINT NOT NULL DEFAULT 0, updated_at VARCHAR(40),
    PRIMARY KEY (pipeline, topic, {partition})
)
"""


def test_pointers_of_version_0_1_0_are_shown_with_their_alters_and_brought_up_to_date(database_url: str) -> None:
    partition = "`partition`" if database_url.startswith("mysql") else '"partition"'
    with closing(open_database(database_url, "test")) as database:
        database.install([OLD_POINTER.format(partition=partition)])
    with App(inorder.Settings.load(None, database={"url": database_url})) as app:
        planned = app.plan_schema("table")
        alters = [change.statement for change in planned if change.kind == "columns"]
        assert all(each.startswith("ALTER TABLE inorder_pointer ADD COLUMN") for each in alters)
        added = " ".join(alters)
        for column in ("topic_id", "leader_epoch", "leader_epoch_at", "end_offset", "unknown_fields"):
            assert f" {column} " in added
        assert "inorder_pointer" not in {change.name for change in planned if change.kind == "table"}
        assert app.install_schema("table") == planned
        assert app.plan_schema("table") == []


def test_the_command_prints_statements_or_that_there_is_nothing_to_do(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "inorder.toml"
    config.write_text(f'[database]\nurl = "{postgres_url}"\n[journal]\nsnapshots = 5\n')

    def run(*arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["inorder", "schema", *arguments, "--config", str(config)])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        assert not ended.value.code
        return capsys.readouterr()

    out, _ = run("plan")
    assert "-- inorder schema install --layout native" in out
    assert "CREATE TABLE IF NOT EXISTS journal_topic" in out
    planned = json.loads(run("plan", "--json").out)  # type: ignore[attr-defined]
    assert {each["layout"] for each in planned} == {"native", "journal"}
    run("install")
    run("install", "--layout", "journal")
    out, said = run("plan")
    assert (out, "Nothing to do" in said) == ("", True)
    assert json.loads(run("plan", "--json").out) == []  # type: ignore[attr-defined]


@pytest.mark.full
def test_a_keyspace_is_planned_too(cassandra: Cassandra) -> None:
    url = f"{cassandra.url}/plan{uuid.uuid4().hex[:8]}"
    with App(inorder.Settings.load(None, journal={"store": url})) as app:
        planned = app.plan_schema("journal")
        assert {"keyspace", "table", "index"} == {change.kind for change in planned}
        app.install_schema("journal")
        assert app.plan_schema("journal") == []
        with closing(CassandraSession(url)) as session:
            session.execute_ddl(f"DROP TABLE {session.keyspace}.journal_topic")
        assert [(change.kind, change.name) for change in app.plan_schema("journal")] == [("table", "journal_topic")]
        assert len(app.install_schema("journal")) == 1
        assert app.plan_schema("journal") == []
