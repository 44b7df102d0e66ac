"""Projections on real Kafka into real databases: shared, killed, paused, and down for longer than the retention."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

import inorder
from inorder.database.database import Database, Transaction, open_database
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator
from tests.selection import few

VIEW = (
    "CREATE TABLE IF NOT EXISTS balance (id varchar(50) PRIMARY KEY, amount integer NOT NULL, events integer NOT NULL)"
)


def fold_balance(transaction: Transaction, change: inorder.Appended | inorder.Deleted | inorder.Purged) -> None:
    """A change that comes twice, or is left out, shows in the sums."""
    match change:
        case inorder.Appended(key, record):
            values = {"id": key.id, "amount": record.event.payload}
            sql = "UPDATE balance SET amount = amount + %(amount)s, events = events + 1 WHERE id = %(id)s"
            if not transaction.execute(sql, values).count:
                transaction.execute("INSERT INTO balance VALUES (%(id)s, %(amount)s, 1)", values)
        case inorder.Purged(key):
            transaction.execute("DELETE FROM balance WHERE id = %(id)s", {"id": key.id})
        case inorder.Deleted():
            pass


@pytest.fixture
def settings(kafka_bootstrap: str, postgres_url: str, unique: str) -> inorder.Settings:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 4)
    with closing(open_journal_store(postgres_url)) as store:
        store.install()
    return inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        journal={"head_cache": False, "topic_prefixes": [unique]},
    )


@pytest.fixture
def journals(settings: inorder.Settings) -> Iterator[inorder.Journals]:
    with inorder.Journals(settings) as journals:
        yield journals


@pytest.fixture(params=few(["postgres_url", "mariadb_url", "sqlite"], "postgres_url", "sqlite"))
def view_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'view.db'}"
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def view(view_url: str) -> Iterator[Database]:
    with closing(open_database(view_url, "test")) as database:
        database.install([VIEW])
        yield database


@pytest.fixture
def postgres_view(postgres_url: str) -> Iterator[Database]:
    with closing(open_database(postgres_url, "test")) as database:
        database.install([VIEW])
        yield database


def balances(database: Database) -> dict[str, tuple[int, int]]:
    rows = database.execute("SELECT id, amount, events FROM balance").rows
    return {row[0]: (row[1], row[2]) for row in rows}


@pytest.mark.full
def test_changes_reach_the_tables_once_and_a_purge_forgets(
    journals: inorder.Journals, view: Database, view_url: str, unique: str
) -> None:
    projection = inorder.Projection("balances", fold_balance, [unique])
    for number in range(8):
        journal = journals.journal(Key(f"account {number}", unique))
        journal.append([Event(1, 10), Event(2, 20)])
        journal.append([Event(2, 5)])  # a fork
    journals.journal(Key("account 0", unique)).purge()
    journals.journal(Key("account 1", unique)).delete(1)
    runner = journals.project(projection, database=view_url)
    assert runner.run(once=True) == {"appended": 16, "deleted": 1, "purged": 1}
    assert balances(view) == {f"account {number}": (30, 2) for number in range(1, 8)}
    journals.journal(Key("account 0", unique)).append([Event(1, 1)])
    assert journals.project(projection, database=view_url).run(once=True) == {"appended": 1, "deleted": 0, "purged": 0}
    assert balances(view)["account 0"] == (1, 1)
    assert {row.lag for row in runner.status()} == {0}
    assert runner.reset() == 4
    view.execute("DELETE FROM balance")
    assert runner.run(once=True)["appended"] == 17
    assert balances(view) == {f"account {number}": (30, 2) for number in range(1, 8)} | {"account 0": (1, 1)}


@pytest.mark.full
def test_what_retention_has_removed_is_read_from_the_store(
    journals: inorder.Journals,
    view: Database,
    view_url: str,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    eventually: Eventually,
) -> None:
    ids = [f"account {number}" for number in range(8)]
    for id in ids:
        journals.journal(Key(id, unique)).append([Event(1, 10), Event(2, 20)])
    projection = inorder.Projection("balances", fold_balance, [unique])
    late = inorder.Projection("late", fold_balance, [unique])
    assert journals.project(late, database=view_url).run(once=True)["appended"] == 16
    journals.journal(Key(ids[0], unique)).purge()
    journals.journal(Key(ids[1], unique)).append([Event(3, 7)])
    with Replicator({"bootstrap.servers": kafka_bootstrap}, postgres_url, unique):
        store = journals.store
        eventually(lambda: (head := store.pointer(Key(ids[1], unique))) is not None and head.seq_nr == 3)
        eventually(lambda: len(list(journals.ids(unique))) == 7)
    client = AdminClient({"bootstrap.servers": kafka_bootstrap})
    ends = [TopicPartition(unique, number, (store.offset(unique, number) or -1) + 1) for number in range(4)]
    for future in client.delete_records(ends).values():
        future.result(60)
    assert journals.project(late, database=view_url).run(once=True) == {"appended": 1, "deleted": 0, "purged": 1}
    expected = dict.fromkeys(ids[2:], (30, 2)) | {ids[1]: (37, 3)}
    assert balances(view) == expected
    view.execute("DELETE FROM balance")
    journals.journal(Key(ids[2], unique)).append([Event(3, 1)])
    assert journals.project(projection, database=view_url).run(once=True)["appended"] == 16
    assert balances(view) == expected | {ids[2]: (31, 3)}


@pytest.mark.full
def test_instances_share_the_partitions_and_one_takes_over_for_another(
    settings: inorder.Settings, postgres_view: Database, unique: str, eventually: Eventually
) -> None:
    projection = inorder.Projection("balances", fold_balance, [unique])
    registry = CollectorRegistry()
    with inorder.Journals(settings, metrics=registry) as journals, inorder.Journals(settings) as others:
        runners = [journals.project(projection), others.project(projection)]
        threads = [threading.Thread(target=runner.run, daemon=True) for runner in runners]
        for thread in threads:
            thread.start()
        eventually(lambda: sorted(len(runner.lags()) for runner in runners) == [2, 2])
        for number in range(40):
            journals.journal(Key(f"account {number}", unique)).append([Event(1, 1)])
        eventually(lambda: len(balances(postgres_view)) == 40)
        runners[1].stop()
        for number in range(40):
            journals.journal(Key(f"account {number}", unique)).append([Event(2, 1)])
        # Longer than a session of Kafka's group: the broker waits for its end if it does not hear that the member left.
        eventually(lambda: set(balances(postgres_view).values()) == {(2, 2)}, 180)
        eventually(lambda: len(runners[0].lags()) == 4 and set(runners[0].lags().values()) == {0})
        labels = {"projection": "balances", "topic": unique, "partition": "0"}
        assert registry.get_sample_value("inorder_projection_lag", labels) == 0
        assert registry.get_sample_value("inorder_projection_waiting", labels) == 0
        runners[0].stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


HALTING = '''
import os, signal, time
from pathlib import Path
import inorder
from tests.integration.journal.test_projecting import fold_balance

def halt(transaction, change):
    """After the writes for a change, inside the transaction: as the file says.

    SIGSTOP reaches a process by one of its threads, and until that one has run this one might commit.
    """
    fold_balance(transaction, change)
    request = Path("halt")
    if request.exists() and isinstance(change, inorder.Appended) and change.seq_nr == 2:
        request.rename("halted")
        os.kill(os.getpid(), getattr(signal, Path("halted").read_text()))
        while not Path("continued").exists():
            time.sleep(0.01)

projection = inorder.Projection("balances", halt, [os.environ["TOPIC"]])
'''


@pytest.mark.full
@pytest.mark.parametrize("stop", ["SIGKILL", "SIGSTOP"])
def test_a_process_that_is_killed_or_paused_inside_its_transaction_applies_nothing_twice(
    journals: inorder.Journals,
    postgres_view: Database,
    kafka_bootstrap: str,
    postgres_url: str,
    unique: str,
    tmp_path: Path,
    eventually: Eventually,
    stop: str,
) -> None:
    """PostgreSQL ends the session of a paused instance; the other one then has the lock, and the first a new start."""
    (tmp_path / "projections.py").write_text(HALTING)
    (tmp_path / "halt").write_text(stop)
    (tmp_path / "inorder.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka_bootstrap}"\n"session.timeout.ms" = 6000\n'
        f'[database]\nurl = "{postgres_url}"\n[journal]\ntopic_prefixes = ["{unique}"]\n'
    )
    accounts = [journals.journal(Key(f"account {number}", unique)) for number in range(4)]
    for account in accounts:
        account.append([Event(1, 1), Event(2, 1)])
    environment = {
        **os.environ,
        "TOPIC": unique,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
    command = [sys.executable, "-m", "inorder.cli", "journal", "project", "projections:projection"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        eventually((tmp_path / "halted").exists)
        if stop == "SIGKILL":
            process.wait(60)
        assert balances(postgres_view) == {}
        rival = [*command, "--once", "--json"]
        done = subprocess.run(rival, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=True)
        assert json.loads(done.stdout)["appended"] == 8
        if stop == "SIGSTOP":
            (tmp_path / "continued").touch()
            process.send_signal(signal.SIGCONT)
        else:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment)
        for account in accounts:
            account.append([Event(3, 1)])
        eventually(lambda: {events for _, events in balances(postgres_view).values()} == {3})
        process.terminate()
        assert process.wait(60) == 0
        assert set(balances(postgres_view).values()) == {(3, 3)}
        shown = subprocess.run(
            [*command, "--status", "--json"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=120,
            check=True,
        )
        assert {row["state"] for row in json.loads(shown.stdout)} == {"following"}
    finally:
        process.kill()
        process.wait(60)
