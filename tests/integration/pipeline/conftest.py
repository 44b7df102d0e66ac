"""One Spark session for all pipeline tests: one JVM per test would take longer than the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import Connection
from pyspark.sql import SparkSession
from sqlalchemy.engine import make_url

from inorder.engines.running import SparkChoice
from inorder.engines.session import start_session
from tests.conftest import Eventually
from tests.operating import recreate

CreateTopic = Callable[..., None]


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    needs_delta = any("/test_delta" in item.nodeid for item in request.session.items)
    # Room for two drivers with two resident tasks each.
    choice = SparkChoice("local[4,4]")
    session = start_session("inorder tests", choice, needs_kafka=True, needs_delta=needs_delta)
    yield session
    session.stop()


@pytest.fixture
def create_topic(kafka_bootstrap: str) -> CreateTopic:
    """Creates a topic and waits until the broker knows it."""

    def create(name: str, partitions: int = 4, **config: str) -> None:
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
        for future in admin.create_topics([topic]).values():
            future.result(timeout=30)

    return create


@pytest.fixture
def recreate_topic(kafka_bootstrap: str, eventually: Eventually) -> CreateTopic:
    """Deletes a topic and creates another one of that name, and waits until the broker knows it."""
    return lambda name, partitions: recreate({"bootstrap.servers": kafka_bootstrap}, name, partitions, eventually)


@pytest.fixture
def direct(postgres_url: str) -> Iterator[Connection[Any]]:
    """A session of our own on the target database."""
    conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection
