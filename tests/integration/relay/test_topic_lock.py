"""The database backend of Deimos from a transaction to Kafka, on every database."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

import inorder
from inorder.model.errors import ConfigurationError
from inorder.model.message import Message
from inorder.model.partitioning import Partitioner, partition_of
from inorder.relay.parts import RelayParts
from inorder.relay.stores.topic_lock import SqlTopicStore
from tests.conftest import Eventually
from tests.integration.relay.commands import COMMAND
from tests.integration.relay.office import TABLE, Office
from tests.operating import exceeded_rows, outbox_numbers, relay_status, settle_exceeded
from tests.selection import few

SOMEBODY = uuid4()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


def opened(url: str, bootstrap: str, unique: str) -> Iterator[Office]:
    with ExitStack() as stack:
        yield Office(url, bootstrap, unique, stack)


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "postgres"))
def office(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Iterator[Office]:
    """On each database."""
    yield from opened(request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique)


@pytest.fixture
def postgres_office(postgres_url: str, kafka_bootstrap: str, unique: str) -> Iterator[Office]:
    """On PostgreSQL."""
    yield from opened(postgres_url, kafka_bootstrap, unique)


def keyed(topic: str, count: int, keys: int = 3) -> list[Message]:
    return [Message(topic, key=f"k{number % keys}", value=str(number)) for number in range(count)]


def test_a_message_of_a_transaction_arrives_as_it_was_written(office: Office, eventually: Eventually) -> None:
    topic = office.topic()
    office.publish(
        Message(topic, key=b"\x00\xff", value=b"\xfe"), Message(topic, key="k"), Message(topic, value=b"no key")
    )
    relay = office.relay()
    eventually(lambda: office.count() == 0)
    assert [(record.key, record.value) for record in office.records(topic)] == [
        (b"\x00\xff", b"\xfe"),
        (b"k", None),
        (None, b"no key"),
    ]
    eventually(lambda: relay.published == 3)
    eventually(lambda: office.lock(topic).locked_by is None)
    row = office.lock(topic)
    assert (row.error, row.retries) == (False, 0)
    assert row.last_processed_at is not None


def test_four_topics_of_many_messages_in_small_batches_keep_their_order(office: Office, eventually: Eventually) -> None:
    topics = [office.topic(name) for name in "abcd"]
    for topic in topics:
        office.publish(*keyed(topic, 25))
    office.relay(batch_size=4, topic_lock={"workers": 3, "delete_group_size": 3, "lock_seconds": 60})
    eventually(lambda: office.count() == 0)
    for topic in topics:
        assert office.values(topic) == [b"%d" % number for number in range(25)]
    assert {event.topic for event in office.told} == set(topics)
    assert max(len(event.messages) for event in office.told) == 4


def topic_store(settings: inorder.Settings) -> SqlTopicStore:
    parts = RelayParts(settings)
    return parts.topic_store(parts.open_database("test"))


def test_a_topic_that_another_worker_has_is_left_alone_until_its_lock_is_old(
    office: Office, eventually: Eventually
) -> None:
    mine, theirs = office.topic("mine"), office.topic("theirs")
    settings = office.settings(topic_lock={"lock_seconds": 600})
    holder = topic_store(settings)
    assert holder.lock(theirs, SOMEBODY)
    office.publish(Message(theirs, value="late"), Message(mine, value="soon"))
    office.stack.enter_context(inorder.Relay(settings))
    eventually(lambda: office.count() == 1)
    assert office.values(theirs) == []
    office.age_lock(theirs, 601)
    eventually(lambda: office.count() == 0)
    assert not holder.heartbeat(theirs, SOMEBODY)
    holder.close()


def test_a_topic_that_cannot_be_written_to_rests_and_recovers_while_others_go_on(
    office: Office, eventually: Eventually
) -> None:
    bad, good = "not a topic!", office.topic("good")
    settings = office.settings(on_exceeded="block", topic_lock={"lock_seconds": 1})
    office.execute(f"INSERT INTO {TABLE} (topic, message) VALUES (%(topic)s, NULL)", topic=bad)
    office.publish(*keyed(good, 5))
    office.stack.enter_context(inorder.Relay(settings))
    eventually(lambda: office.count() == 1)
    eventually(lambda: office.lock(bad).retries >= 2)
    state = office.lock(bad)
    assert (state.locked_by, state.messages) == (None, 1)
    office.execute(f"UPDATE {TABLE} SET topic = %(good)s", good=good)
    eventually(lambda: office.count() == 0)


def test_a_message_that_is_too_large_is_set_aside_alone_and_comes_back_in_order(
    office: Office, eventually: Eventually
) -> None:
    topic = office.topic()
    large = Message(topic, key="bad", value=b"x" * 900_000)
    office.publish(*keyed(topic, 5), large, *keyed(topic, 5), Message(topic, key="bad", value="behind it"))
    relay = office.relay(max_attempts=2, topics={topic: {"kafka": {"message.max.bytes": 100_000}}})
    eventually(lambda: exceeded_rows(office.settings()))
    eventually(lambda: office.count() == 1)
    numbers = [b"%d" % number for number in range(5)]
    assert office.values(topic) == numbers * 2, "the rest is neither lost nor reordered"
    [row] = exceeded_rows(office.settings())
    assert (row.key, row.attempts, row.parks) == (b"bad", 2, True)
    numbers_now = outbox_numbers(office.settings())
    assert (numbers_now["exceeded"], numbers_now["parked_keys"]) == (1, 1)
    assert relay.stop(60)
    settle_exceeded(office.settings(), "retry", "the limit was raised")
    office.relay()
    eventually(lambda: office.count() == 0)
    assert office.values(topic)[-2:] == [b"x" * 900_000, b"behind it"]


def test_a_compacted_topic_gets_the_last_message_of_each_key(office: Office, eventually: Eventually) -> None:
    compact, whole = office.topic("compact"), office.topic("whole")
    for topic in (compact, whole):
        office.publish(*keyed(topic, 10), Message(topic, value="unkeyed"))
    office.relay(topic_lock={"compact_topics": [compact]})
    eventually(lambda: office.count() == 0)
    assert office.values(compact) == [b"7", b"8", b"9", b"unkeyed"]
    assert len(office.values(whole)) == 11


def test_a_partition_key_decides_the_partition_and_the_key_where_there_is_none(
    office: Office, eventually: Eventually
) -> None:
    topic = office.topic(partitions=5)
    key = "`key`" if office.url.startswith("mysql") else "key"
    insert = f"INSERT INTO {TABLE} (topic, {key}, partition_key, message) VALUES (%(topic)s, %(key)s, %(by)s, %(key)s)"
    wanted = {}
    for number in range(20):
        row_key, by = b"key-%d" % number, None if number % 4 == 0 else f"group-{number % 4}"
        office.execute(insert, topic=topic, key=row_key, by=by)
        wanted[row_key] = partition_of(row_key if by is None else by.encode(), 5, Partitioner.MURMUR2)
    office.relay()
    eventually(lambda: office.count() == 0)
    assert {record.value: record.partition for record in office.records(topic)} == wanted


def test_several_relays_share_the_topics_and_double_nothing(office: Office, eventually: Eventually) -> None:
    topics = [office.topic(name) for name in "abcdef"]
    relays = [office.relay(batch_size=7, topic_lock={"workers": 2, "lock_seconds": 30}) for _ in range(2)]
    for start in range(5):
        office.publish(*(Message(topic, key="k", value=str(start * 10 + n)) for n in range(10) for topic in topics))
    eventually(lambda: office.count() == 0)
    for topic in topics:
        assert office.values(topic) == [b"%d" % number for number in range(50)]
    eventually(lambda: sum(relay.published for relay in relays) == 300)


def test_state_and_figures_of_a_relay(office: Office, eventually: Eventually) -> None:
    topic = office.topic()
    relay = inorder.Relay(office.settings())
    assert (relay.state, relay.published, relay.is_leader, relay.in_flight) == ("created", 0, False, 0)
    with relay:
        assert relay.state == "running"
        office.publish(*keyed(topic, 3))
        eventually(lambda: relay.published == 3)
        with pytest.raises(ConfigurationError):
            relay.on_event(print)
    assert relay.state == "stopped"
    assert relay.wait(60)


def test_what_waits_is_told_by_topic(office: Office) -> None:
    topic = "t"
    office.publish(*keyed(topic, 3))
    holder = topic_store(office.settings())
    holder.lock(topic, SOMEBODY)
    status = relay_status(office.settings())
    assert (status["strategy"], status["waiting"]) == ("topic-lock", 3)
    [found] = status["topics"]
    assert (found["topic"], found["messages"], found["locked_by"]) == (topic, 3, str(SOMEBODY))
    assert (found["error"], found["retries"]) == (False, 0)
    assert 0 <= found["oldest_seconds"] == status["oldest_seconds"] < 60
    holder.close()


def test_a_missing_table_ends_the_relay_with_what_makes_it(office: Office) -> None:
    office.execute("DROP TABLE kafka_topic_info")
    relay = inorder.Relay(office.settings())
    relay.start()
    with pytest.raises(ConfigurationError, match="kafka_topic_info") as refusal:
        relay.wait(30)
    assert "inorder schema sql --layout deimos" in refusal.value.hint


def test_our_own_writers_wake_an_idle_relay_on_postgres(postgres_office: Office, eventually: Eventually) -> None:
    office, topic = postgres_office, postgres_office.topic()
    relay = office.relay(topic_lock={"idle_ms": 60_000, "workers": 3})
    office.publish(Message(topic, value="0"))
    eventually(lambda: relay.published == 1)
    for number in range(1, 6):
        office.publish(Message(topic, value=str(number)))
        eventually(lambda number=number: relay.published == number + 1, 40)  # type: ignore[misc]  # bound


@pytest.mark.full
def test_a_sigterm_finishes_the_batch_releases_the_locks_and_tells_what_is_left(
    postgres_office: Office, tmp_path: Path, eventually: Eventually
) -> None:
    office, topic = postgres_office, postgres_office.topic()
    config = office.config(tmp_path, workers=2)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.005):
            office.publish(*keyed(topic, 200))

    writer = threading.Thread(target=write)
    with subprocess.Popen(
        [*COMMAND, "relay", "run", "--config", str(config)], stderr=subprocess.PIPE, text=True
    ) as process:
        writer.start()
        try:
            eventually(lambda: len(office.values(topic)) > 100)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=120)[1]
        finally:
            stop.set()
            writer.join()
            process.kill()
    assert process.returncode == 0, said
    assert "rows wait in the outbox" in said
    state = office.lock(topic)
    assert (state.locked_by, state.error) == (None, False)
    shown = subprocess.run(
        [*COMMAND, "relay", "status", "--json", "--config", str(config)], capture_output=True, text=True, check=True
    )
    [found] = json.loads(shown.stdout)["topics"]
    assert found["messages"] == office.count()
    words = subprocess.run(
        [sys.executable, "-m", "inorder.cli", "relay", "status", "--config", str(config)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert topic in words
    assert "oldest_seconds" in words
    before = office.values(topic)
    assert len(before) == len({(record.partition, record.offset) for record in office.records(topic)})
    office.relay()
    eventually(lambda: office.count() == 0)
