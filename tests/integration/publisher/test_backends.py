"""One line of configuration chooses the backend; the application's code is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import inorder
from inorder.database.postgres import connect
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import PublishRefusedError
from tests.contract.outbox.conftest import install, plain, psycopg_async_connection, stored
from tests.integration.publisher.conftest import LARGE, LIMIT, Make, expected_by_key, numbered, values_by_key

Handle = psycopg.Connection[tuple[object, ...]]


def place_orders(publisher: inorder.Publisher, connection: Handle, topic: str) -> None:
    """An application: it writes a row, publishes what happened, and commits."""
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id int)")
    connection.execute("INSERT INTO orders VALUES (42)")
    publisher.publish_list(numbered(topic, 100), connection)
    connection.commit()


@pytest.mark.parametrize("backend", ["db", "kafka", "kafka_async", "memory"])
def test_the_same_application_runs_with_each_backend_by_one_line_of_configuration(
    backend: str, tmp_path: Path, postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    install(postgres_url)
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    file = tmp_path / "inorder.toml"
    file.write_text(f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n[publisher]\nbackend = "{backend}"\n')
    with inorder.Publisher(inorder.Settings.load(file)) as publisher, connect(postgres_url, "test") as connection:
        place_orders(publisher, connection, unique)
        assert publisher.close() == []
        kept = publisher.published.messages(unique)
    expected, nothing = expected_by_key(numbered(unique, 100)), dict[bytes | None, list[bytes | None]]()
    arrived = values_by_key(kafka_bootstrap, unique)
    rows = [(record.key, record.value) for _, record in stored(postgres_url)]
    assert arrived == (expected if backend.startswith("kafka") else nothing)
    assert len(rows) == (100 if backend == "db" else 0)
    assert kept == (numbered(unique, 100) if backend == "memory" else [])


@pytest.mark.parametrize("backend", ["db", "kafka", "kafka_async", "memory"])
def test_with_an_async_connection_every_backend_is_awaited(
    backend: str, make: Make, postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    install(postgres_url)
    publisher = make(backend=backend)
    with psycopg_async_connection(postgres_url) as client:
        client.settle(publisher.publish_list(numbered(unique, 10), client.connection))
        client.commit()
    assert publisher.close(30) == []
    found = len(stored(postgres_url)) + len(publisher.published.messages())
    found += sum(len(values) for values in values_by_key(kafka_bootstrap, unique).values())
    assert found == 10


def test_the_event_loop_runs_on_while_kafka_is_waited_for(make: Make, postgres_url: str, unique: str) -> None:
    publisher = make(bootstrap="127.0.0.1:9", backend="kafka", timeout_seconds=1)

    async def work() -> int:
        ticks = 0
        async with await psycopg.AsyncConnection.connect(plain(postgres_url)) as connection:
            sending = asyncio.create_task(_awaited(publisher.publish_list(numbered(unique, 1), connection)))
            while not sending.done():
                ticks += 1
                await asyncio.sleep(0.01)
            with pytest.raises(inorder.PublishError):
                sending.result()
        return ticks

    assert asyncio.run(work()) > 3


async def _awaited(outcome: object) -> None:
    await outcome  # type: ignore[misc]  # it is what an async connection makes of the call


def test_a_topic_may_have_a_backend_of_its_own(
    make: Make, postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    install(postgres_url)
    topics = {f"{unique}.{name}": {"backend": name} for name in ("kafka", "kafka_async", "memory")}
    publisher = make(backend="db", topics=topics)
    messages = [message for name in (unique, *topics) for message in numbered(name, 20)]
    mixed = [messages[place] for start in range(20) for place in range(start, 80, 20)]
    with connect(postgres_url, "test") as connection:
        publisher.publish_list(mixed, connection)
        connection.commit()
    assert publisher.flush(60) == 0
    rows = stored(postgres_url)
    assert [record.topic for _, record in rows] == [unique] * 20
    assert [record.value for _, record in rows] == [str(message.value).encode() for message in numbered(unique, 20)]
    assert publisher.published.messages() == numbered(f"{unique}.memory", 20)
    for name in ("kafka", "kafka_async"):
        assert values_by_key(kafka_bootstrap, f"{unique}.{name}") == expected_by_key(numbered("", 20))


def test_when_one_backend_fails_the_error_counts_the_messages_of_all(
    make: Make, postgres_url: str, kafka_bootstrap: str, unique: str
) -> None:
    install(postgres_url)
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1, {"max.message.bytes": str(LIMIT)})
    written, later = inorder.Message("written", value="1"), inorder.Message(f"{unique}.later", value="3")
    large = inorder.Message(unique, key="k", value=LARGE)
    topics = {unique: {"backend": "kafka"}, later.topic: {"backend": "kafka_async"}}
    publisher = make(backend="db", topics=topics)
    with connect(postgres_url, "test") as connection:
        with pytest.raises(PublishRefusedError) as caught:
            publisher.publish_list([later, large, written], connection)
        assert caught.value.sent == (written,)
        assert caught.value.unsent == (later, large)
        publisher.publish(later, connection)
        connection.commit()
    assert [record.topic for _, record in stored(postgres_url)] == ["written"]
    assert publisher.close(30) == []
    assert values_by_key(kafka_bootstrap, later.topic) == {None: [b"3"]}


PUBLISHES: list[Callable[[inorder.Publisher], object]] = [
    lambda publisher: publisher.publish_list([]),
    lambda publisher: publisher.publish_list(iter([inorder.Message("t", value=1)])),
    lambda publisher: publisher.publish_list(inorder.Message("t", value=n) for n in range(2)),
]


@pytest.mark.parametrize("publish", PUBLISHES)
def test_any_iterable_is_a_list(make: Make, publish: Callable[[inorder.Publisher], object]) -> None:
    publisher = make(backend="memory")
    publish(publisher)
    assert len(publisher.published.messages()) == PUBLISHES.index(publish)
