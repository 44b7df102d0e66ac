"""The servers of the test session, each started when a test first asks for it and stopped at the end.

A server that cannot start is an error of the test that needs it, never a skip.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it ships no types

from inorder.embedded import Cassandra, Kafka, MariaDB, Postgres, Redis
from inorder.embedded.folders import RunFolder
from tests import selection as selection  # it registers the profile of Hypothesis, which is looked up next
from tests.shared_servers import LentServers, OwnServers, Servers

T = TypeVar("T")

SERVERS = pytest.StashKey[Servers]()

ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """A worker borrows its servers from the process that was started."""
    address = getattr(config, "workerinput", {}).get("servers")
    config.stash[SERVERS] = LentServers(address) if address else OwnServers()


def pytest_configure_node(node: Any) -> None:
    """Tells a worker of xdist where the servers are."""
    node.workerinput["servers"] = node.config.stash[SERVERS].serve()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The end of the session is the end of its servers."""
    if isinstance(servers := config.stash.get(SERVERS, None), OwnServers):
        servers.close()


class SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # and so has none
    """Gives every file to one worker, and all that starts Spark to the same one.

    A JVM, its Python workers and the planning of a first batch want both cores; two at once take minutes each.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if starts_spark(file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkTogether | None:
    """For `--dist loadfile`."""
    return SparkTogether(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Puts what starts Spark first, behind whoever shuffles: it takes the longest."""
    yield
    items.sort(key=lambda item: starts_spark(item.nodeid.partition("::")[0]), reverse=True)


@cache
def starts_spark(file: str) -> bool:
    """Whether tests of a file have a Spark of their own, or run a command that has one: it asks for it or is marked."""
    text = (ROOT / file).read_text("utf-8")
    return "pytest.mark.spark" in text or "spark: SparkSession" in text


class Eventually(Protocol):
    """Polls a condition until it is truthy and returns its value; fails the test when the time is over."""

    def __call__(self, condition: Callable[[], T], timeout: float = 60) -> T: ...


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """The one waiting function of our tests."""

    def wait_until(condition: Callable[[], T], timeout: float = 60) -> T:
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while not (value := condition()):
            if time.monotonic() > deadline:
                name = getattr(condition, "__qualname__", repr(condition))
                pytest.fail(f"not true within {timeout} s: {name} (last value {value!r})")
            pause.wait(0.05)
        return value

    return wait_until


@pytest.fixture
def unique() -> str:
    """A short lowercase name nobody else uses, for topics, groups and databases."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """Where servers of one worker alone keep data and logs; what a killed session leaves, the next one removes."""
    run = RunFolder.fresh()
    yield run.path
    run.close()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Servers:
    """The servers that all workers share."""
    return pytestconfig.stash[SERVERS]


@pytest.fixture(scope="session")
def postgres(servers: Servers) -> Postgres:
    """The session's PostgreSQL."""
    return servers.get(Postgres)


@pytest.fixture(scope="session")
def kafka(servers: Servers) -> Kafka:
    """The session's broker."""
    return servers.get(Kafka)


@pytest.fixture(scope="session")
def mariadb(servers: Servers) -> MariaDB:
    """The session's MariaDB."""
    return servers.get(MariaDB)


@pytest.fixture(scope="session")
def redis_server(servers: Servers) -> Redis:
    """The session's Redis."""
    return servers.get(Redis)


@pytest.fixture(scope="session")
def cassandra(servers: Servers) -> Cassandra:
    """The session's Cassandra node."""
    return servers.get(Cassandra)


@pytest.fixture
def postgres_url(postgres: Postgres, unique: str) -> Iterator[str]:
    """A fresh, empty PostgreSQL database, dropped after the test with whoever is still connected."""
    yield postgres.create_database(unique)
    postgres.drop_database(unique)


@pytest.fixture
def mariadb_url(mariadb: MariaDB, unique: str) -> Iterator[str]:
    """A fresh, empty MariaDB database, dropped after the test."""
    yield mariadb.create_database(unique)
    mariadb.drop_database(unique)


@pytest.fixture
def kafka_bootstrap(kafka: Kafka) -> str:
    """The session broker's `bootstrap.servers`."""
    return kafka.bootstrap


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """The session's Redis, shared: use `unique` in keys."""
    return redis_server.url


@pytest.fixture
def cassandra_address(cassandra: Cassandra) -> tuple[str, int]:
    """Host and port of the session's Cassandra, shared: use `unique` for keyspaces."""
    return cassandra.address
