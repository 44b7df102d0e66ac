"""The native table, as each database makes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Tools

COLUMNS = {
    "id": False,
    "topic": False,
    "key": True,
    "value": True,
    "headers": True,
    "partition": True,
    "timestamp": True,
    "created_at": False,
    "leader_id": True,
}


def rows(url: str, query: str) -> Any:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return connection.exec_driver_sql(query).all()


def publish(url: str, table: str = "outbox") -> None:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        Outbox(table).publish(connection, Message("orders", value="x"))


def test_the_columns_and_which_of_them_may_be_null(tools: Tools, database_url: str) -> None:
    tools.install(database_url)
    inspector = inspect(create_engine(database_url, poolclass=NullPool))
    found = {column["name"]: column["nullable"] for column in inspector.get_columns("outbox")}
    assert found | {"id": False} == COLUMNS
    assert inspector.get_pk_constraint("outbox")["constrained_columns"] == ["id"]


def test_installing_again_changes_nothing(tools: Tools, database_url: str) -> None:
    tools.install(database_url)
    publish(database_url)
    tools.install(database_url)
    assert len(tools.stored(database_url)) == 1


def test_created_at_is_the_present_in_utc(tools: Tools, database_url: str) -> None:
    tools.install(database_url)
    publish(database_url)
    [(created,)] = rows(database_url, "SELECT created_at FROM outbox")
    moment = datetime.fromisoformat(created) if isinstance(created, str) else created
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - moment) < timedelta(seconds=30)


def test_ids_are_never_given_twice(tools: Tools, database_url: str) -> None:
    tools.install(database_url)
    publish(database_url)
    [(first, _)] = tools.stored(database_url)
    with create_engine(database_url, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox")
    publish(database_url)
    [(second, _)] = tools.stored(database_url)
    assert second > first


def test_a_table_may_be_named_like_a_keyword(tools: Tools, database_url: str) -> None:
    with create_engine(database_url, poolclass=NullPool).begin() as connection:
        for statement in install_statements("native", connection.dialect.name, "order"):
            connection.exec_driver_sql(statement)
    publish(database_url, "order")
    quote = "`" if database_url.startswith("mysql") else '"'
    assert len(tools.stored(database_url, f"{quote}order{quote}")) == 1


def test_a_table_in_a_schema_with_capitals(tools: Tools, postgres_url: str) -> None:
    with create_engine(postgres_url, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql('CREATE SCHEMA "App"')
    tools.install(postgres_url, "App.Outbox")
    publish(postgres_url, "App.Outbox")
    assert len(tools.stored(postgres_url, '"App"."Outbox"')) == 1


def test_postgres_hands_out_ids_one_by_one_as_the_relay_s_scan_needs(outbox_url: str) -> None:
    query = "SELECT cache_size FROM pg_sequences WHERE sequencename = 'outbox_id_seq'"
    assert rows(outbox_url, query) == [(1,)]
    query = "SELECT identity_generation FROM information_schema.columns WHERE column_name = 'id'"
    assert ("ALWAYS",) in rows(outbox_url, query)


def test_postgres_vacuums_the_queue_by_count(outbox_url: str) -> None:
    [(options,)] = rows(outbox_url, "SELECT reloptions FROM pg_class WHERE oid = 'outbox'::regclass")
    assert {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=10000"} <= set(options)


def test_publishing_needs_no_right_but_insert(tools: Tools, outbox_url: str, unique: str) -> None:
    role = f"publisher_{unique}"
    engine = create_engine(outbox_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role}")
        connection.exec_driver_sql(f"GRANT INSERT ON outbox TO {role}")
        connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
        Outbox().publish(connection, Message("orders", value="x"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")
    assert len(tools.stored(outbox_url)) == 1
