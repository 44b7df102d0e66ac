"""What is refused at the door, and that the door opens without loading any driver."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest
import sqlalchemy
from sqlalchemy.orm import sessionmaker

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Limits, Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.outbox.publisher import MessagePublisher
from inorder.settings import Settings


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in install_statements("native", "sqlite", "outbox"):
            connection.execute(statement)
        yield connection


def written(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM outbox").fetchone()[0])


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (None, "builtins.NoneType"),
        ("postgresql://host/db", "builtins.str"),
        (sqlalchemy.create_engine("sqlite://"), "sqlalchemy.engine.base.Engine"),
        (sessionmaker(), "sqlalchemy.orm.session.sessionmaker"),
        (object(), "builtins.object"),
        (sqlite3.Connection, "builtins.type"),
    ],
)
def test_a_wrong_object_is_refused_with_its_type_and_what_is_accepted(wrong: Any, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Outbox().publish(wrong, Message("t"))
    assert name in caught.value.message
    for accepted in ("Session", "AsyncSession", "psycopg 3", "PyMySQL", "sqlite3", "django.db.connection"):
        assert accepted in caught.value.hint
    with pytest.raises(ConfigurationError, match=name):
        Outbox().publish_list(wrong, [])


def test_a_cursor_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite3\.Cursor"):
        Outbox().publish(cast("Any", connection.cursor()), Message("t"))


def test_a_subclass_is_what_its_parent_is() -> None:
    class Ours(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Ours)) as connection:
        connection.execute(install_statements("native", "sqlite", "outbox")[0])
        Outbox().publish(connection, Message("t"))
        assert written(connection) == 1


def test_sqlite_s_newer_autocommit_attribute_is_heeded() -> None:
    class WithAutocommit(sqlite3.Connection):
        autocommit = True  # what Python 3.12 gives a connection made with autocommit=True

    with closing(sqlite3.connect(":memory:", factory=WithAutocommit)) as connection:
        with pytest.raises(ConfigurationError, match="autocommit"):
            Outbox().publish(connection, Message("t"))
        connection.execute("BEGIN")
        connection.execute(install_statements("native", "sqlite", "outbox")[0])
        Outbox().publish(connection, Message("t"))
        assert written(connection) == 1


def test_a_database_without_a_layout_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="'oracle'"):
        install_statements("native", "oracle", "outbox")


@pytest.mark.parametrize("table", ["", "out box", "a.b.c", 'x"; DROP TABLE y', "1st"])
def test_a_table_name_that_cannot_be_quoted_is_refused_at_once(table: str) -> None:
    with pytest.raises(ConfigurationError, match="table name"):
        Outbox(table)


def test_a_single_refusal_names_the_field_alone(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError) as caught:
        Outbox().publish(connection, Message("t", partition=-1))
    assert caught.value.field == "partition"
    assert written(connection) == 0


def test_a_refusal_in_a_list_names_the_place_once(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError) as caught:
        Outbox().publish_list(connection, [Message("t"), Message("t", value=1), Message("")])
    assert caught.value.field == "messages[2].topic"
    assert caught.value.message == "messages[2].topic: '' is empty."
    assert caught.value.hint == "Name the Kafka topic of the message."
    assert written(connection) == 0


def test_what_is_no_message_is_refused_by_type(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError) as caught:
        Outbox().publish(connection, cast("Any", {"topic": "t"}))
    assert caught.value.field == "message"
    assert "dict" in caught.value.message
    with pytest.raises(ValidationError) as caught:
        Outbox().publish_list(connection, cast("Any", [Message("t"), "t"]))
    assert caught.value.field == "messages[1]"
    assert caught.value.message == "messages[1]: a str is not a Message."


def test_one_message_in_place_of_a_list_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError) as caught:
        Outbox().publish_list(connection, cast("Any", Message("t")))
    assert caught.value.field == "messages"
    assert "publish(" in caught.value.hint


def test_a_generator_is_read_whole_before_anything_is_written(connection: sqlite3.Connection) -> None:
    def messages() -> Iterator[Message]:
        yield Message("t", value="1")
        assert written(connection) == 0
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        Outbox().publish_list(connection, messages())
    assert written(connection) == 0
    assert not connection.in_transaction


def test_limits_belong_to_the_outbox(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError, match=r"4 bytes are over the limit of 3"):
        Outbox(limits=Limits(max_value_bytes=3)).publish(connection, Message("t", value="1234"))


def test_importing_the_outbox_loads_no_driver() -> None:
    program = """
import sys, inorder.outbox
loaded = {"sqlalchemy", "django", "psycopg", "pymysql", "sqlite3"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_publishing_through_one_driver_loads_no_other() -> None:
    program = """
import sqlite3, sys
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
connection = sqlite3.connect(":memory:")
connection.execute(install_statements("native", "sqlite", "outbox")[0])
Outbox().publish(connection, Message("t"))
loaded = {"sqlalchemy", "django", "psycopg", "pymysql"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


RESERVED = ["inorder.orders.marker", "inorder.orders.leader", "inorder.topics", "inorder.spark", "inorder."]


@pytest.mark.parametrize("topic", RESERVED)
@pytest.mark.parametrize("backend", ["db", "kafka", "kafka_async", "memory"])
def test_every_publisher_refuses_inorder_s_own_topics(connection: sqlite3.Connection, topic: str, backend: str) -> None:
    """A message in a marker topic could say that rows are published which were never sent."""
    messages = [Message("orders"), Message(topic, key="0", value={"published": "1-1000", "floor": 0}, partition=0)]
    publisher = MessagePublisher(Settings.load(publisher={"backend": backend}), {})
    for publish in (publisher.publish_list, lambda some, handle: Outbox().publish_list(handle, some)):
        with pytest.raises(ValidationError) as caught:
            publish(messages, connection)
        assert caught.value.field == "messages[1].topic"
        assert f"{topic!r} is reserved" in caught.value.message
    assert written(connection) == 0
    assert publisher.published.messages() == []


@pytest.mark.parametrize("topic", ["inorder", "inorder-orders", "inorder_orders", "my.inorder.orders"])
def test_names_that_only_resemble_them_are_free(connection: sqlite3.Connection, topic: str) -> None:
    Outbox().publish(connection, Message(topic))
    assert written(connection) == 1
