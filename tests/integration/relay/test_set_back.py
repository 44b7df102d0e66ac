"""Ids that are given out again name other rows: these are published, whatever the last marker says of their ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import inorder
from inorder.database.database import Database, open_database
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from tests.conftest import Eventually
from tests.operating import install_schema, relay_status
from tests.selection import few

TABLE = "outbox"
PUBLISHED, KEPT, NEW = 60, 20, 40

INSERTS = {
    "native": 'INSERT INTO outbox (topic, "key", "value") VALUES (%(topic)s, %(key)s, %(value)s)',
    "trendyol": 'INSERT INTO outbox (topic, "key", "value") VALUES (%(topic)s, %(text_key)s, %(text)s)',
    "goharvest": (
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)"
        " VALUES (CURRENT_TIMESTAMP, %(topic)s, %(text_key)s, %(text)s, %(none)s, %(none)s)"
    ),
    "debezium": (
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)"
        " VALUES (%(uuid)s, %(topic)s, %(text_key)s, 'Happened', %(json)s)"
    ),
}
IDS = {"debezium": "seq"}


class Scene:
    """One outbox of one layout in one database, and relays on it."""

    def __init__(self, url: str, bootstrap: str, unique: str, strategy: str, layout: str, stack: ExitStack) -> None:
        self.layout = layout
        self.topic = f"outbox.event.{unique}" if layout == "debezium" else unique
        self._route = unique
        self._properties = {"bootstrap.servers": bootstrap}
        self.settings = inorder.Settings.load(
            kafka={"bootstrap.servers": bootstrap},
            database={"url": url},
            relay={
                "group": unique,
                "strategy": strategy,
                "layout": layout,
                "table": TABLE,
                "leadership": "none",
                "io_back_off_ms": 50,
                "polling": {"queue_wait_ms": 10, "missing_wait_ms": 100},
            },
        )
        self.is_polling = strategy == "polling"
        install_schema(self.settings, layout)
        ensure_topic(self._properties, self.topic, 1)
        self.database: Database = stack.enter_context(closing(open_database(url, "test")))

    def write(self, *values: str) -> None:
        statement = INSERTS[self.layout]
        if self.database.dialect == "mysql":
            statement = statement.replace('"', "`")
        none: Any = [] if self.database.dialect == "postgres" else "[]"
        with self.database.transaction() as transaction:
            for value in values:
                bound = {"topic": self._route, "key": b"k", "text_key": "k", "value": value.encode(), "text": value}
                bound |= {"none": none, "uuid": str(uuid4()), "json": json.dumps(value)}
                transaction.execute(statement, bound)

    def values(self) -> list[str]:
        found = (record.value for record in read_back(self._properties, self.topic))
        return [value.decode().strip('"') for value in found if value is not None]

    def is_settled(self) -> bool:
        """Whether nothing is left to do for the relay."""
        if self.is_polling:
            found = relay_status(self.settings)
            return bool(found["behind"] == 0 and found["missing"] == 0)
        return int(self.database.execute(f"SELECT COUNT(*) FROM {TABLE}").rows[0][0]) == 0

    def set_back(self, *, truncates: bool = False) -> None:
        """As a promoted replica would be that lacks the last commits."""
        id, last = IDS.get(self.layout, "id"), 0 if truncates else KEPT
        if self.database.dialect == "postgres":
            self.database.execute(f"DELETE FROM {TABLE} WHERE {id} > {last}")
            self.database.execute(f"SELECT setval(pg_get_serial_sequence('{TABLE}', '{id}'), {last})")
        elif truncates:
            self.database.execute(f"TRUNCATE TABLE {TABLE}")
        elif self.database.dialect == "mysql":
            self.database.execute(f"DELETE FROM {TABLE} WHERE {id} > {last}")
            self.database.execute(f"ALTER TABLE {TABLE} AUTO_INCREMENT = {last + 1}")
        else:
            self.database.execute(f"DELETE FROM {TABLE} WHERE {id} > {last}")
            self.database.execute(f"UPDATE sqlite_sequence SET seq = {last} WHERE name = '{TABLE}'")
        if self.is_polling:
            column = "`offset`" if self.database.dialect == "mysql" else '"offset"'
            offset = self.settings.relay.polling.side_tables.beside(TABLE).offset
            self.database.execute(f"UPDATE {offset} SET {column} = {last}")


CASES = [
    *((strategy, layout) for strategy in ("drain", "mark-purge") for layout in ("native", "goharvest")),
    ("drain", "debezium"),
    ("drain", "trendyol"),
    ("polling", "trendyol"),
]
COMBINED = [
    (database, *case, state)
    for database in ("postgres", "mariadb", "sqlite")
    for case in CASES
    for state in ("restarted", "running")
]
FEW = [
    ("postgres", "drain", "native", "restarted"),
    ("postgres", "drain", "native", "running"),
    ("mariadb", "drain", "debezium", "restarted"),
    ("mariadb", "mark-purge", "goharvest", "running"),
    ("postgres", "mark-purge", "goharvest", "restarted"),
    ("postgres", "polling", "trendyol", "restarted"),
    ("mariadb", "polling", "trendyol", "running"),
    ("sqlite", "polling", "trendyol", "restarted"),
]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=few(COMBINED, *FEW), ids=" ".join)
def case(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Iterator[tuple[Scene, bool]]:
    """A scene, and whether the relay keeps running."""
    database, strategy, layout, state = request.param
    with ExitStack() as stack:
        url = request.getfixturevalue(f"{database}_url")
        yield Scene(url, kafka_bootstrap, unique, strategy, layout, stack), state == "running"


OLD = [f"old {number}" for number in range(PUBLISHED)]
FRESH = [f"new {number}" for number in range(NEW)]


@pytest.mark.full
def test_rows_with_ids_of_published_ones_arrive_once(case: tuple[Scene, bool], eventually: Eventually) -> None:
    scene, keeps_running = case
    scene.write(*OLD)
    with inorder.Relay(scene.settings):
        eventually(lambda: len(scene.values()) == PUBLISHED and scene.is_settled())
        if keeps_running:
            scene.set_back()
            scene.write(*FRESH)
            eventually(lambda: len(scene.values()) >= PUBLISHED + NEW and scene.is_settled())
    if not keeps_running:
        scene.set_back()
        scene.write(*FRESH)
        with inorder.Relay(scene.settings):
            eventually(lambda: scene.is_settled() and len(scene.values()) >= PUBLISHED + NEW)
    assert scene.values() == [*OLD, *FRESH]


@pytest.mark.full
@pytest.mark.parametrize("strategy", few(["drain", "mark-purge"], "drain"))
def test_a_table_that_was_truncated_begins_again(
    strategy: str, mariadb_url: str, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    with ExitStack() as stack:
        scene = Scene(mariadb_url, kafka_bootstrap, unique, strategy, "native", stack)
        scene.write(*OLD)
        with inorder.Relay(scene.settings):
            eventually(lambda: len(scene.values()) == PUBLISHED and scene.is_settled())
        scene.set_back(truncates=True)
        scene.write(*FRESH)
        with inorder.Relay(scene.settings):
            eventually(lambda: scene.is_settled() and len(scene.values()) >= PUBLISHED + NEW)
        assert scene.values() == [*OLD, *FRESH]


TRUNCATED = [(database, *case) for database in ("postgres", "mariadb") for case in CASES if case[0] != "polling"]
FEW_TRUNCATED = [("postgres", "drain", "native"), ("mariadb", "mark-purge", "goharvest")]


@pytest.mark.full
@pytest.mark.parametrize("case", few(TRUNCATED, *FEW_TRUNCATED), ids=" ".join)
def test_rows_of_a_table_that_is_truncated_before_a_purge_are_not_deleted_unsent(
    case: tuple[str, str, str],
    request: pytest.FixtureRequest,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session is the same, and the ids that it is about to purge are those of new rows."""
    database, strategy, layout = case
    store: type[PostgresOutboxStore | MySQLOutboxStore] = (
        PostgresOutboxStore if database == "postgres" else MySQLOutboxStore
    )
    purge, is_written_anew = store.purge, threading.Event()

    def purge_later(self: Any, ids: Sequence[int], session: int | None = None) -> int:
        assert not ids or is_written_anew.wait(60)
        return purge(self, ids, session)

    monkeypatch.setattr(store, "purge", purge_later)
    with ExitStack() as stack:
        scene = Scene(request.getfixturevalue(f"{database}_url"), kafka_bootstrap, unique, strategy, layout, stack)
        scene.write(*OLD)
        with inorder.Relay(scene.settings):
            eventually(lambda: len(scene.values()) == PUBLISHED)
            scene.database.execute(f"TRUNCATE TABLE {TABLE}" + (" RESTART IDENTITY" if database == "postgres" else ""))
            scene.write(*FRESH)
            is_written_anew.set()
            eventually(lambda: scene.is_settled() and len(scene.values()) >= PUBLISHED + NEW)
        assert scene.values() == [*OLD, *FRESH]


def test_the_rows_that_the_database_lost_are_in_the_status(
    postgres_url: str, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    with ExitStack() as stack:
        scene = Scene(postgres_url, kafka_bootstrap, unique, "drain", "native", stack)
        scene.write(*OLD)
        with inorder.Relay(scene.settings):
            eventually(lambda: len(scene.values()) == PUBLISHED and scene.is_settled())
        assert relay_status(scene.settings)["phantoms"] == ""
        scene.set_back()
        scene.write("new")
        with inorder.Relay(scene.settings):
            eventually(lambda: len(scene.values()) == PUBLISHED + 1 and scene.is_settled())
        assert relay_status(scene.settings)["phantoms"] == "21,22-60"
