"""The doctor checks the journal store if one is configured."""

from __future__ import annotations

import inorder
from inorder.operate.doctor import examine_journal
from tests.operating import install_schema


def test_without_journals_nothing_is_looked_at() -> None:
    assert examine_journal(inorder.Settings.load()) == []


def test_missing_tables_are_told_with_what_makes_them(postgres_url: str) -> None:
    settings = inorder.Settings.load(database={"url": postgres_url}, journal={"segment_size": 100})
    [check] = examine_journal(settings)
    assert (check.name, check.status, check.unreachable) == ("journal store", "fail", False)
    assert "inorder schema install --layout journal" in check.hint
    install_schema(settings, "journal")
    assert [check.status for check in examine_journal(settings)] == ["ok"]


def test_a_store_that_does_not_answer_is_unreachable() -> None:
    store = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    [check] = examine_journal(inorder.Settings.load(journal={"store": store}))
    assert (check.status, check.unreachable) == ("fail", True)
