"""The database loses its last commits, which were published: a replica is promoted, or an older copy started.

What is written afterwards gets ids of rows that were published. All of it must arrive, once.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

import inorder
from inorder.database.database import dialect_of, open_database
from inorder.database.mysql import connect as mysql_connect
from inorder.embedded.mariadb import MariaDB
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.errors import InorderError
from inorder.model.message import Message
from inorder.outbox import Outbox
from tests.conftest import Eventually
from tests.operating import install_schema, relay_status
from tests.standby import Address, run_pair

HOST = "127.0.0.1"


class Writer:
    """Writes rows with values of their own, one transaction after the other, and knows which were committed."""

    def __init__(self, url: str, topic: str, layout: str) -> None:
        self._url, self._topic, self._layout = url, topic, layout
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.committed: list[str] = []
        self.era = "before"

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def of(self, era: str) -> list[str]:
        return [value for value in list(self.committed) if value.startswith(era)]

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            failures = (InorderError, psycopg.Error, pymysql.MySQLError, OSError)
            with suppress(*failures), closing(self._connect()) as connection:
                while not self._stop.is_set():
                    values = [f"{self.era} {number + each}" for each in range(3)]
                    number += 3
                    for value in values:
                        self._insert(connection, value)
                    connection.commit()
                    self.committed += values
            self._stop.wait(0.05)

    def _connect(self) -> Any:
        if dialect_of(self._url) == "mysql":
            return mysql_connect(self._url, "test")
        return psycopg.connect(make_url(self._url).set(drivername="postgresql").render_as_string())

    def _insert(self, connection: Any, value: str) -> None:
        if self._layout == "goharvest":
            none = "[]" if dialect_of(self._url) == "mysql" else "{}"
            connection.cursor().execute(
                "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                " kafka_header_values) VALUES (now(), %s, %s, %s, %s, %s)",
                (self._topic, f"k{len(value) % 3}", value, none, none),
            )
        else:
            message = Message(self._topic, key=f"k{len(value) % 3}", value=value)
            Outbox("outbox", layout=self._layout).publish(connection, message)


def settings_of(url: str, bootstrap: str, unique: str, strategy: str, layout: str) -> inorder.Settings:
    return inorder.Settings.load(
        kafka={"bootstrap.servers": bootstrap},
        database={"url": url},
        relay={
            "group": unique,
            "strategy": strategy,
            "layout": layout,
            "table": "outbox",
            "leadership": "none",
            "io_back_off_ms": 100,
            "polling": {"queue_wait_ms": 10, "missing_wait_ms": 200, "breaker": {"open_seconds": 1}},
        },
    )


def values_in(settings: inorder.Settings, topic: str) -> list[str]:
    found = (record.value for record in read_back(settings.kafka.properties, topic))
    return [value.decode().strip('"') for value in found if value is not None]


CASES = [("drain", "native"), ("mark-purge", "goharvest"), ("polling", "trendyol"), ("drain", "goharvest")]
# The others run with `make fault`: one of 31 runs failed for a reason that is not known yet.
CHOSEN = [case if case == CASES[0] else pytest.param(case, marks=pytest.mark.fault) for case in CASES]


@pytest.mark.parametrize("case", CHOSEN, ids=" ".join)
def test_a_replica_without_the_last_commits_is_promoted_under_load(
    case: tuple[str, str],
    tmp_path: Path,
    kafka_bootstrap: str,
    unique: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy, layout = case
    with run_pair(tmp_path, eventually) as pair, Address(pair.primary) as address:
        primary, standby = pair.primary, pair.standby
        url = make_url(primary.url).set(port=address.port).update_query_dict({"sslmode": "disable"})
        settings = settings_of(url.render_as_string(), kafka_bootstrap, unique, strategy, layout)
        install_schema(settings, layout)
        ensure_topic(settings.kafka.properties, unique, 1)
        with inorder.Relay(settings), Writer(url.render_as_string(), unique, layout) as writer:
            eventually(lambda: len(values_in(settings, unique)) > 50)
            pair.stop_receiving()
            writer.era = "lost"
            eventually(lambda: sum(value.startswith("lost") for value in values_in(settings, unique)) > 100)
            primary.kill()
            pair.promote()
            with psycopg.connect(standby.url.replace("+psycopg", "")) as connection:
                survived = connection.execute("SELECT count(*) FROM outbox").fetchone()
            writer.era = "after"
            address.move(standby, ends=True)
            eventually(lambda: len(writer.of("after")) > 300)
            writer.__exit__()
            wanted = {*writer.of("before"), *writer.of("after")}
            eventually(lambda: wanted <= set(values_in(settings, unique)), 120)
        found = Counter(values_in(settings, unique))
    assert not wanted - found.keys(), "nothing that the database has is lost"
    assert {found[value] for value in writer.of("after")} == {1}
    again = {value for value in found if found[value] > 1}
    assert all(not value.startswith("after") for value in again)
    assert survived is not None
    assert strategy == "polling" or len(again) <= survived[0], "only rows whose purge was lost may come twice"
    assert [each for each in caplog.records if each.message == "relay.database_went_back"]


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_an_older_copy_of_mariadb_is_started(
    strategy: str, tmp_path: Path, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    folder = tmp_path / "mariadb"
    with ExitStack() as stack:
        server = stack.enter_context(MariaDB(folder))
        settings = settings_of(server.create_database(unique), kafka_bootstrap, unique, strategy, "native")
        install_schema(settings, "native")
        ensure_topic(settings.kafka.properties, unique, 1)

        def write(values: Sequence[str]) -> None:
            statement = "INSERT INTO outbox (topic, `key`, `value`) VALUES (%(topic)s, 'k', %(value)s)"
            url = settings.database.require_url()
            with closing(open_database(url, "test")) as database, database.transaction() as transaction:
                for value in values:
                    transaction.execute(statement, {"topic": unique, "value": value})

        def is_published(count: int) -> bool:
            status = relay_status(settings)
            return bool(len(values_in(settings, unique)) >= count and status["waiting"] == 0)

        kept, lost, new = ([f"{era} {number}" for number in range(40)] for era in ("kept", "lost", "new"))
        with inorder.Relay(settings):
            write(kept)
            eventually(lambda: is_published(40))
        server.stop()
        shutil.copytree(server.data, tmp_path / "copy")
        server.start()
        with inorder.Relay(settings):
            write(lost)
            eventually(lambda: is_published(80))
            server.kill()
            shutil.rmtree(server.data)
            shutil.copytree(tmp_path / "copy", server.data)
            server.start()
            write(new)
            eventually(lambda: is_published(120), 120)
        assert values_in(settings, unique) == [*kept, *lost, *new]


MARIADB_CASES = [*CASES, ("topic-lock", "deimos")]


@pytest.mark.fault
@pytest.mark.parametrize("case", MARIADB_CASES, ids=" ".join)
def test_an_older_copy_of_mariadb_is_started_under_load(
    case: tuple[str, str], tmp_path: Path, kafka_bootstrap: str, unique: str, eventually: Eventually
) -> None:
    """Rows that came back may come twice; what was written since the copy was started comes once."""
    strategy, layout = case
    with ExitStack() as stack:
        server = stack.enter_context(MariaDB(tmp_path / "mariadb"))
        url = server.create_database(unique)
        settings = settings_of(url, kafka_bootstrap, unique, strategy, layout)
        install_schema(settings, layout)
        ensure_topic(settings.kafka.properties, unique, 1)

        def has_published(era: str, many: int) -> bool:
            return sum(value.startswith(era) for value in values_in(settings, unique)) > many

        with inorder.Relay(settings), Writer(url, unique, layout) as writer:
            eventually(lambda: has_published("before", 50))
            server.stop()
            shutil.copytree(server.data, tmp_path / "copy")
            writer.era = "lost"
            server.start()
            eventually(lambda: has_published("lost", 100))
            server.kill()
            shutil.rmtree(server.data)
            shutil.copytree(tmp_path / "copy", server.data)
            writer.era = "after"
            server.start()
            eventually(lambda: len(writer.of("after")) > 300)
            writer.__exit__()
            wanted = {*writer.of("before"), *writer.of("after")}
            eventually(lambda: wanted <= set(values_in(settings, unique)), 120)
        found = Counter(values_in(settings, unique))
    assert not wanted - found.keys(), "nothing that the database has is lost"
    again = {value for value in writer.of("after") if found[value] > 1}
    assert strategy == "topic-lock" or not again
