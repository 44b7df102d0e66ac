"""Fixtures for the whole session: servers start when a test first requests them and stop at the end.

A server that cannot start is an error of each test that needs it, never a skip.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import structlog
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it ships no types

from inorder.embedded import Cassandra, Kafka, MariaDB, Postgres, Redis
from inorder.embedded.folders import RunFolder
from tests import selection as selection  # registers the Hypothesis profile, which pytest looks up next
from tests.shared_servers import LentServers, OwnServers, Servers
from tests.spare_databases import SpareDatabases

T = TypeVar("T")

SERVERS = pytest.StashKey[Servers]()

ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist uses the servers of the main process."""
    address = getattr(config, "workerinput", {}).get("servers")
    config.stash[SERVERS] = LentServers(address) if address else OwnServers()


def pytest_configure_node(node: Any) -> None:
    """Passes the address of the servers to a worker of xdist."""
    node.workerinput["servers"] = node.config.stash[SERVERS].serve()


def pytest_unconfigure(config: pytest.Config) -> None:
    if isinstance(servers := config.stash.get(SERVERS, None), OwnServers):
        servers.close()


class SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # and so has none
    """Runs each file on one worker, and all files that start Spark on the same one.

    A JVM, its Python workers and the planning of the first batch need both cores; two at once take minutes each.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if starts_spark(file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkTogether | None:
    """For `--dist loadfile`."""
    return SparkTogether(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Sorts files that start Spark to the front, after the random shuffle: they take the longest."""
    yield
    items.sort(key=lambda item: starts_spark(item.nodeid.partition("::")[0]), reverse=True)


@cache
def starts_spark(file: str) -> bool:
    """Whether tests of a file start Spark, or run a command that does: they use the fixture or have the marker."""
    text = (ROOT / file).read_text("utf-8")
    return "pytest.mark.spark" in text or "spark: SparkSession" in text


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Takes back what a command run within the test set: its stream is closed, its level would let more through."""
    root, ours = logging.getLogger(), logging.getLogger("inorder")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def topics_on_demand() -> Iterator[None]:
    """Tests with servers name topics freely and let the broker create them, which settings do not by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INORDER_KAFKA__ALLOW_AUTO_CREATE_TOPICS", "true")
        yield


class Eventually(Protocol):
    """Polls a condition until it is truthy and returns its value; fails the test after the timeout."""

    def __call__(self, condition: Callable[[], T], timeout: float = 60) -> T: ...


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """The only way in which tests wait."""

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
    """A short lowercase name that is unique, for topics, groups and databases."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """The folder for servers of a single worker; the next session removes what a killed one leaves."""
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


@pytest.fixture(scope="session")
def spare_databases(postgres: Postgres) -> Iterator[SpareDatabases]:
    """Databases that tests of this worker use one after the other."""
    with closing(SpareDatabases(postgres)) as found:
        yield found


@pytest.fixture
def postgres_url(spare_databases: SpareDatabases, unique: str) -> Iterator[str]:
    """An empty PostgreSQL database; after the test its sessions end and its content is dropped."""
    yield spare_databases.take(unique)
    spare_databases.give_back(unique)


@pytest.fixture
def mariadb_url(mariadb: MariaDB, unique: str) -> Iterator[str]:
    """A fresh, empty MariaDB database, dropped after the test.

    Unless TLS is disabled, PyMySQL loads all certificates of the machine for each connection: 36 ms of CPU time, and
    all but 1 ms of what a connection to this server takes, which has no TLS.
    """
    yield f"{mariadb.create_database(unique)}?ssl_disabled=true"
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
