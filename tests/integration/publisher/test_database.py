"""Backend `db`: the messages are rows of the caller's transaction, or nothing is written and the error says why."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import inorder
from inorder.model.errors import ConfigurationError, ValidationError
from tests.contract.outbox.conftest import Client, stored
from tests.integration.publisher.conftest import Make, numbered

CHANGES = {
    "missing table": "DROP TABLE outbox",
    "missing column": "ALTER TABLE outbox RENAME COLUMN headers TO heads",
}


def execute(url: str, statement: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_messages_are_committed_with_the_caller_and_vanish_with_a_rollback(make: Make, client: Client) -> None:
    publisher = make(backend="db")
    client.settle(publisher.publish_list(numbered("orders", 3), client.connection))
    client.rollback()
    client.settle(publisher.publish(inorder.Message("orders", key=1, value="kept"), client.connection))
    client.settle(publisher.publish_list(numbered("orders", 2), client.connection))
    assert stored(client.url) == []
    client.commit()
    assert [record.value for _, record in stored(client.url)] == [b"kept", b"0", b"0"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_not_as_it_should_be_is_told_with_the_command_and_nothing_is_written(
    make: Make, client: Client, change: str
) -> None:
    client.rollback()
    execute(client.url, CHANGES[change])
    with pytest.raises(ConfigurationError) as caught:
        client.settle(make(backend="db").publish_list(numbered("orders", 3), client.connection))
    client.rollback()
    assert caught.value.message.startswith("Nothing was written: 'outbox' is not an outbox table of layout 'native'.")
    assert "inorder schema sql --layout native" in caught.value.hint
    assert caught.value.__cause__ is not None


def test_other_errors_of_the_database_stay_what_they_are(make: Make, postgres_url: str) -> None:
    from tests.contract.outbox.conftest import install, psycopg_connection

    install(postgres_url)
    with psycopg_connection(postgres_url) as client:
        client.connection.execute("SET statement_timeout = 1")
        client.connection.commit()
        execute(postgres_url, "ALTER TABLE outbox ADD CHECK (pg_sleep(0.1) IS NOT NULL)")
        with pytest.raises(Exception, match="statement timeout") as caught:
            make(backend="db").publish_list(numbered("orders", 3), client.connection)
        assert not isinstance(caught.value, inorder.InorderError)


def test_without_a_connection_the_fix_is_named(make: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"'orders'.*no connection was given") as caught:
        make(backend="db").publish(inorder.Message("orders"))
    assert "publish_list(messages, session)" in caught.value.hint
    assert "publisher.backend" in caught.value.hint


@pytest.mark.parametrize("change", CHANGES)
def test_check_finds_what_is_wrong_with_the_table_before_anything_is_published(
    make: Make, database_url: str, change: str
) -> None:
    from tests.contract.outbox.conftest import install

    install(database_url)
    publisher = make(backend="db", database_url=database_url)
    publisher.check()
    execute(database_url, CHANGES[change])
    with pytest.raises(ConfigurationError) as caught:
        publisher.check()
    assert "inorder schema sql --layout native" in caught.value.hint


@pytest.mark.full
def test_check_finds_brokers_that_do_not_answer(make: Make, kafka_bootstrap: str) -> None:
    make(backend="kafka").check()
    make(backend="memory").check()
    with pytest.raises(inorder.TransientError, match=r"127\.0\.0\.1:9"):
        make(backend="memory", topics={"orders": {"backend": "kafka"}}, bootstrap="127.0.0.1:9").check()


def test_a_bad_message_for_one_backend_keeps_all_others_from_being_sent(make: Make, client: Client) -> None:
    publisher = make(backend="db", topics={"seen": {"backend": "memory"}})
    bad = [inorder.Message("seen", value=1), inorder.Message("orders", value=float("nan"))]
    with pytest.raises(ValidationError, match=r"messages\[1\]\.value"):
        client.settle(publisher.publish_list(bad, client.connection))
    client.commit()
    publisher.published.assert_nothing_published()
    assert stored(client.url) == []
