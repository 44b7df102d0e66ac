"""Each role does its work with exactly the rights that `inorder schema sql --roles` prints, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

import inorder
from inorder.app import App
from inorder.database.database import open_database
from inorder.database.postgres import connect
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import ConfigurationError
from inorder.operate.roles import ROLES
from inorder.pipeline.job import GenerationGate, prepare_tables
from inorder.topics.pauses import PauseKind
from tests.conftest import Eventually
from tests.selection import few

PASSWORD = "geheim"
SettingsAs = Callable[..., inorder.Settings]

LAYOUTS = {"drain": "native", "mark-purge": "goharvest", "topic-lock": "deimos", "polling": "trendyol"}
FIELDS = {"key": "id", "key_type": "text", "fields": {"n": "bigint"}}
REFUSED_ROW = {
    "native": """INSERT INTO outbox (topic, "value") VALUES ('inorder.forged', 'x')""",
    "goharvest": """INSERT INTO outbox
        (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        VALUES (now(), 'inorder.forged', 'k', 'x', '{}', '{}')""",
    "deimos": "INSERT INTO outbox (topic, key, message) VALUES ('inorder.forged', 'k', 'x')",
    "trendyol": """INSERT INTO outbox (topic, "key", "value") VALUES ('inorder.forged', 'k', 'x')""",
}
"""Topics of this name are reserved, so the relay sets the row aside."""
FORBIDDEN = {
    "publisher": ["SELECT 1 FROM outbox", "DELETE FROM outbox", "SELECT 1 FROM orders", "DELETE FROM inorder_exceeded"],
    "relay": ["INSERT INTO outbox DEFAULT VALUES", "SELECT 1 FROM orders", "DELETE FROM inorder_exceeded"],
    "pipeline": ["SELECT 1 FROM outbox", "DELETE FROM inorder_pointer", "TRUNCATE orders"],
    "reader": ["SELECT 1 FROM outbox", "DELETE FROM orders", "SELECT 1 FROM inorder_dead_letter"],
    "operator": ["TRUNCATE outbox", "DELETE FROM inorder_action", "DROP TABLE orders"],
}


@pytest.fixture
def owner(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(postgres_url, "test", autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield connection


@pytest.fixture
def settings_as(
    postgres_url: str, kafka_bootstrap: str, unique: str, owner: psycopg.Connection[Any]
) -> Iterator[SettingsAs]:
    """Settings with the login of a role, or of the owner; the names of the roles begin with the name of the test."""
    names = [f"{unique}_{role}" for role in ROLES]
    for name in names:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")

    def load(role: str | None = None, **sections: Any) -> inorder.Settings:
        url = make_url(postgres_url)
        if role is not None:
            url = url.set(username=f"{unique}_{role}", password=PASSWORD)
        return inorder.Settings.load(
            None,
            database={"url": url.render_as_string(hide_password=False)},
            kafka={"bootstrap.servers": kafka_bootstrap},
            pipeline=sections.pop("pipeline", {"upsert": {"topic": unique, "table": "orders", **FIELDS}}),
            relay={"group": unique, "table": "outbox", "leadership": "database", **sections.pop("relay", {})},
            **sections,
        )

    ensure_topic(load().kafka.properties, unique, 1)
    yield load
    for name in names:
        owner.execute(f"DROP OWNED BY {name}")
        owner.execute(f"DROP ROLE {name}")


def grant(settings: inorder.Settings, owner: psycopg.Connection[Any], unique: str) -> None:
    """Installs as the owner, and runs what is printed."""
    with App(settings) as app:
        for layout in app.configured_layouts():
            app.install_schema(layout)
        owner.execute(app.roles_sql(None, "postgresql", f"{unique}_").encode())


def refuse_forbidden(settings_as: SettingsAs) -> None:
    for role, statements in FORBIDDEN.items():
        with connect(settings_as(role).database.require_url(), "test", autocommit=True) as connection:
            for statement in [*statements, "CREATE TABLE mine (id integer)"]:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())


@pytest.mark.parametrize("strategy", few(list(LAYOUTS), "drain"))
def test_every_role_does_its_work_with_the_rights_that_are_printed_and_nothing_else(
    settings_as: SettingsAs,
    owner: psycopg.Connection[Any],
    unique: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    strategy: str,
) -> None:
    layout = LAYOUTS[strategy]
    relay = {"strategy": strategy, "layout": layout}
    grant(settings_as(relay=relay), owner, unique)

    published = {"a": {"id": "a", "n": 1}, "x": "not an object", "b": {"id": "b", "n": 2}}
    if layout == "goharvest":  # its writers are others
        with connect(settings_as("publisher").database.require_url(), "test") as connection:
            for key, value in published.items():
                connection.execute(
                    "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                    " kafka_header_values) VALUES (now(), %s, %s, %s, '{}', '{}')",
                    (unique, key, json.dumps(value)),
                )
    else:
        publisher = inorder.Publisher(settings_as("publisher", relay=relay, pipeline={}))  # it checks no values
        messages = [inorder.Message(unique, key=key, value=value) for key, value in published.items()]
        with connect(settings_as("publisher").database.require_url(), "test") as connection:
            publisher.publish_list(messages, connection)
    owner.execute(REFUSED_ROW[layout].encode())

    with App(settings_as("operator", relay=relay)) as operator:
        with caplog.at_level("INFO", "inorder.stores"), inorder.Relay(settings_as("relay", relay=relay)) as relaying:
            eventually(lambda: relaying.published == len(published) and operator.relay_admin.exceeded_rows())
        assert "database.not_installed" not in caplog.messages

        with App(settings_as("pipeline", relay=relay)) as pipeline:
            work = pipeline.upsert_work
            prepare_tables(work.targets, pipeline.database)
            reading = GenerationGate(pipeline.generations, pipeline.pointers, pipeline._pauses.read).reading(work)
            assert reading is not None
            InProcess(reading, KafkaSource(dict(pipeline.settings.kafka.properties))).run(threading.Event(), once=True)
            pipeline.clean_tombstones()

        with connect(settings_as("reader").database.require_url(), "test") as connection:
            assert connection.execute("SELECT id, n FROM orders ORDER BY id").fetchall() == [("a", 1), ("b", 2)]

        assert len(operator.set_aside.settle_exceeded("retry", "it is tried", topic="inorder.forged").result) == 1
        (letter,) = operator.dead_letters.read(10)
        assert operator.dead_letters.discard("of no use", topic=letter.topic) == 1
        operator.pause(PauseKind.TOPIC, unique, reason="an incident")
        assert operator.resume(PauseKind.TOPIC, unique).result
        assert operator.pipeline_status()
        operator.reset_pipeline(unique, from_first=True)
        found = [check for check in operator.examine() if check.status == "fail"]
        assert found == []
    refuse_forbidden(settings_as)


def test_mariadb_takes_what_is_printed_for_mysql(mariadb_url: str, unique: str) -> None:
    settings = inorder.Settings.load(
        None,
        database={"url": mariadb_url},
        pipeline={"upsert": {"topic": unique, "table": "orders", **FIELDS}},
    )
    users = [f"'{unique}_{role}'@'%'" for role in ROLES]
    with App(settings) as app:
        for layout in app.configured_layouts():
            app.install_schema(layout)
        app.database.install([f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'" for user in users])
        try:
            lines = app.roles_sql(None, "mysql", f"{unique}_").splitlines()
            app.database.install([line.rstrip(";") for line in lines if line.startswith("GRANT")])
            login = make_url(mariadb_url).set(username=f"{unique}_reader", password=PASSWORD)
            with closing(open_database(login.render_as_string(hide_password=False), "test")) as reader:
                assert reader.execute("SELECT id, n FROM orders").rows == []
                with pytest.raises(ConfigurationError, match="denied"):
                    reader.execute("SELECT id FROM outbox")
        finally:
            app.database.install([f"DROP USER {user}" for user in users])
