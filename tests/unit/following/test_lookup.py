"""What the lookup of a key reads in the outbox and of pauses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

import inorder
from inorder.app import App
from inorder.database.database import Database, open_database
from inorder.operate.key_lookup import pauses_of, waiting_rows
from inorder.operate.key_trace import TableHop
from inorder.settings import Settings
from inorder.topics.pauses import Pause, PauseKind, Pauses


@pytest.fixture
def database(tmp_path: Path, empty_place: None) -> Iterator[Database]:
    """An outbox with rows of one key in two topics."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    with App(Settings.load(database={"url": url})) as app:
        app.install_schema("native")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        messages = [inorder.Message(topic, key="k", value="v") for topic in ("orders", "orders", "bills")]
        inorder.Outbox().publish_list(connection, messages)
    engine.dispose()
    with closing(open_database(url, "test")) as found:
        yield found


def test_only_rows_of_the_topic_that_was_asked_for_are_counted(database: Database) -> None:
    count, first = waiting_rows(database, "outbox", "native", b"k", topic="bills")
    assert (count, [row.topic for row in first]) == (1, ["bills"])
    count, first = waiting_rows(database, "outbox", "native", b"k")
    assert (count, [row.topic for row in first]) == (3, ["orders", "orders", "bills"])


def pause(kind: PauseKind, name: str) -> Pause:
    return Pause(kind, name, "why", "ann", "now")


def test_the_pauses_of_a_key_are_its_own_and_those_of_its_topics_and_tables() -> None:
    ours = (
        pause(PauseKind.KEY, "orders/k/1"),
        pause(PauseKind.TOPIC, "orders"),
        pause(PauseKind.TABLE, "messages"),
        pause(PauseKind.PIPELINE, "upsert"),
    )
    others = (
        pause(PauseKind.KEY, "orders/k"),
        pause(PauseKind.KEY, "bills/k/1"),
        pause(PauseKind.TOPIC, "bills"),
        pause(PauseKind.TABLE, "accounts"),
        pause(PauseKind.PIPELINE, "replicate"),
        pause(PauseKind.SHARD, "0"),
    )
    tables = [TableHop("messages", "upsert:messages")]
    assert pauses_of(Pauses(others + ours), "k/1", {"orders"}, tables) == ours
