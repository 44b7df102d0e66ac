"""The tables of PollingOutboxPublisher from a transaction to Kafka, on every database."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import inorder
from inorder.embedded.server import free_port
from inorder.model.errors import ConfigurationError
from inorder.model.message import Message
from inorder.relay.reloading import RelayService
from inorder.testing.checker import check_delivery
from tests.conftest import Eventually
from tests.integration.relay.commands import COMMAND
from tests.integration.relay.conftest import alter_topic
from tests.integration.relay.depot import TABLE, TOO_LARGE, Depot, numbered
from tests.operating import exceeded_rows, relay_status, reshard, settle_exceeded
from tests.selection import few

SMALL = {"max.message.bytes": "2000"}
LARGE = {"max.message.bytes": "1000000"}


def opened(url: str, bootstrap: str, unique: str) -> Iterator[Depot]:
    with ExitStack() as stack:
        yield Depot(url, bootstrap, unique, stack)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "sqlite"))
def depot(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Iterator[Depot]:
    """On each database."""
    yield from opened(request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique)


@pytest.fixture(params=few(["postgres", "mariadb"], "postgres"))
def busy_depot(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Iterator[Depot]:
    """On each database in which several transactions write at once."""
    yield from opened(request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique)


@pytest.fixture
def postgres_depot(postgres_url: str, kafka_bootstrap: str, unique: str) -> Iterator[Depot]:
    """On PostgreSQL."""
    yield from opened(postgres_url, kafka_bootstrap, unique)


def test_events_arrive_as_they_were_written_and_stay_in_their_table(depot: Depot, eventually: Eventually) -> None:
    topic = depot.topic()
    depot.publish(
        Message(topic, key="k", value='{"a": "ä"}', headers={"trace": "1"}),
        Message(topic, value="no key"),
    )
    depot.relay()
    eventually(depot.is_done)
    records = depot.records(topic)
    assert [(record.key, record.value) for record in records] == [(b"k", '{"a": "ä"}'.encode()), (None, b"no key")]
    assert ("trace", b"1") in records[0].headers
    assert depot.execute(f"SELECT count(*) FROM {TABLE}")[0][0] == 2
    state = depot.state()
    assert (state.offset, state.newest_id, state.missing, state.exceeded, state.behind) == (2, 2, 0, 0, 0)


@pytest.mark.full
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_relay_goes_on_from_the_offset_of_the_last_one(
    postgres_depot: Depot, delivery: str, eventually: Eventually
) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    depot.publish(*numbered(topic, range(50)))
    first = depot.relay(delivery=delivery)
    eventually(depot.is_done)
    assert first.stop(30)
    depot.publish(*numbered(topic, range(50, 100)))
    depot.relay(delivery=delivery)
    eventually(depot.is_done)
    assert [int(value or b"") for value in depot.values(topic)] == list(range(100))


def test_half_of_all_ids_are_rolled_back_and_nothing_is_lost_doubled_or_overtaken(
    busy_depot: Depot, eventually: Eventually
) -> None:
    """Ids that were never committed are proven so: none is left in missing, and none is given up."""
    depot, topic, chance, placed = busy_depot, busy_depot.topic(), random.Random(6), list[tuple[str, int]]()
    depot.relay(batch_size=50)
    for number in range(120):
        key = f"k{number % 7}"
        place = sum(other == key for other, _ in placed) + 1
        message = Message(topic, key=key, value=str(place))
        if chance.random() < 0.5:
            depot.roll_back(message)
        else:
            depot.publish(message)
            placed.append((key, place))
    eventually(lambda: depot.is_done() and len(depot.values(topic)) >= len(placed))
    arrived = [((record.key or b"").decode(), int(record.value or b"0")) for record in depot.records(topic)]
    verdict = check_delivery(placed, arrived)
    assert verdict.holds, verdict
    assert depot.state().exceeded == 0


@pytest.mark.parametrize("seconds", [0.1, 2.0])
def test_a_row_that_commits_after_the_offset_has_passed_it_is_delivered(
    busy_depot: Depot, seconds: float, eventually: Eventually
) -> None:
    """Also when its transaction stays open for ten times as long as the budget of a missing event."""
    depot, topic = busy_depot, busy_depot.topic()
    depot.relay(polling={"missing_wait_ms": 100, "missing_max_retries": 2})
    with depot.transaction() as late:
        depot.add(late, Message(topic, key="late", value="1"))
        depot.publish(*numbered(topic, range(5)))
        eventually(lambda: depot.state().offset == 6)
        assert (depot.state().missing, depot.values(topic)) == (1, [b"0", b"1", b"2", b"3", b"4"])
        threading.Event().wait(seconds)
        depot.publish(Message(topic, key="other", value="later"))
        eventually(lambda: b"later" in depot.values(topic))
    eventually(depot.is_done)
    assert depot.values(topic)[-1] == b"1"
    assert depot.state().exceeded == 0


@pytest.mark.full
def test_a_refused_record_holds_its_key_uses_up_its_attempts_and_is_released_by_a_person(
    postgres_depot: Depot, eventually: Eventually
) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    alter_topic(depot.bootstrap, topic, SMALL)
    depot.relay()
    depot.publish(
        Message(topic, key="bad", value=TOO_LARGE),
        Message(topic, key="good", value="1"),
        Message(topic, key="bad", value="behind"),
    )
    eventually(lambda: depot.state().exceeded == 1)
    assert depot.values(topic) == [b"1"]
    (row,) = exceeded_rows(depot.settings())
    assert (row.id, "too large" in row.reason.lower() or "MSG_SIZE" in row.reason) == (1, True), row
    assert depot.state().missing == 1, "the event behind it waits"
    alter_topic(depot.bootstrap, topic, LARGE)
    settle_exceeded(depot.settings(), "retry", "the topic takes more now")
    eventually(depot.is_done)
    assert depot.values(topic) == [b"1", TOO_LARGE.encode(), b"behind"]


@pytest.mark.full
def test_a_discarded_event_is_never_sent_and_its_key_goes_on(postgres_depot: Depot, eventually: Eventually) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    alter_topic(depot.bootstrap, topic, SMALL)
    depot.relay()
    depot.publish(Message(topic, key="bad", value=TOO_LARGE), Message(topic, key="bad", value="behind"))
    eventually(lambda: depot.state().exceeded == 1)
    settle_exceeded(depot.settings(), "discard", "not worth it")
    eventually(depot.is_done)
    assert depot.values(topic) == [b"behind"]


@pytest.mark.full
def test_without_an_order_to_keep_later_events_of_a_key_pass(postgres_depot: Depot, eventually: Eventually) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    alter_topic(depot.bootstrap, topic, SMALL)
    depot.relay(polling={"keep_order": False})
    depot.publish(Message(topic, key="bad", value=TOO_LARGE), Message(topic, key="bad", value="behind"))
    eventually(lambda: depot.values(topic) == [b"behind"])
    eventually(lambda: depot.state().exceeded == 1)
    assert depot.state().missing == 0


def test_a_malformed_header_is_given_up_at_once_with_the_reason(postgres_depot: Depot, eventually: Eventually) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    depot.execute(f"INSERT INTO {TABLE} (key, value, topic, header) VALUES ('k', 'v', '{topic}', '[1')")
    depot.publish(Message(topic, key="other", value="1"))
    depot.relay()
    eventually(lambda: depot.state().exceeded == 1)
    eventually(lambda: depot.values(topic) == [b"1"])
    assert "malformed" in exceeded_rows(depot.settings())[0].reason


def test_with_publishing_switched_off_the_offset_moves_and_nothing_is_sent(
    postgres_depot: Depot, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    depot.publish(*numbered(topic, range(10)))
    depot.relay(polling={"is_publishing_on": False})
    eventually(lambda: depot.state().offset == 10)
    assert depot.values(topic) == []
    assert "relay.publishing_is_off" in caplog.text


def test_rows_far_above_the_offset_are_reached_without_recording_every_id(
    postgres_depot: Depot, eventually: Eventually
) -> None:
    """As after old rows were deleted, or with a sequence that was set ahead."""
    depot, topic = postgres_depot, postgres_depot.topic()
    depot.execute(f"ALTER TABLE {TABLE} ALTER COLUMN id RESTART WITH 3000000000")
    depot.publish(*numbered(topic, range(3)))
    depot.relay()
    eventually(lambda: len(depot.values(topic)) == 3)
    assert depot.state().missing == 0


@pytest.mark.full
def test_a_person_sets_the_offset_back_and_events_are_sent_again(postgres_depot: Depot, eventually: Eventually) -> None:
    """Below the last round, that is: what the last one published is known, and not sent again by a lower offset."""
    depot, topic = postgres_depot, postgres_depot.topic()
    first = depot.relay()
    for number in range(3):
        depot.publish(*numbered(topic, range(number, number + 1)))
        eventually(depot.is_done)
    assert first.stop(30)
    depot.execute('UPDATE outbox_offsets SET "offset" = 1')
    depot.relay()
    eventually(lambda: [int(value or b"") for value in depot.values(topic)] == [0, 1, 2, 1, 2])


@pytest.mark.full
def test_another_group_goes_on_where_the_last_one_was_and_all_rows_stay(
    postgres_depot: Depot, eventually: Eventually
) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    depot.publish(*numbered(topic, range(5)))
    first = depot.relay()
    eventually(depot.is_done)
    assert first.stop(30)
    # As if the last one had died before it settled: only its marker knows.
    depot.execute('UPDATE outbox_offsets SET "offset" = 0')
    reshard(depot.settings(group=f"{depot.group}-2"))
    assert depot.state().offset == 5
    depot.publish(*numbered(topic, range(5, 7)))
    depot.relay(group=f"{depot.group}-2")
    eventually(lambda: [int(value or b"") for value in depot.values(topic)] == list(range(7)))
    assert depot.execute(f"SELECT count(*) FROM {TABLE}")[0][0] == 7


def test_tables_that_are_not_there_are_named_with_the_command_that_makes_them(postgres_depot: Depot) -> None:
    postgres_depot.execute("DROP TABLE missing_outbox_events")
    with pytest.raises(ConfigurationError, match=r"missing_outbox_events.*inorder schema install --layout trendyol"):
        postgres_depot.relay().wait(30)


@pytest.mark.full
def test_status_tells_offset_missing_and_exceeded(
    postgres_depot: Depot, tmp_path: Path, eventually: Eventually
) -> None:
    depot, topic = postgres_depot, postgres_depot.topic()
    alter_topic(depot.bootstrap, topic, SMALL)
    depot.relay()
    depot.publish(Message(topic, key="k", value="1"), Message(topic, key="bad", value=TOO_LARGE))
    eventually(lambda: depot.state().exceeded == 1)
    found = relay_status(depot.settings())
    wanted = {"strategy": "polling", "offset": 2, "newest_id": 2, "behind": 0, "missing": 0, "exceeded": 1}
    assert wanted.items() <= found.items()
    done = subprocess.run(
        [*COMMAND, "relay", "status", "--json", "--config", str(depot.config(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert wanted.items() <= json.loads(done.stdout).items()


@pytest.mark.full
def test_status_tells_the_breakers_where_the_relay_tells_its_health(
    postgres_depot: Depot, tmp_path: Path, eventually: Eventually
) -> None:
    """Where it does not, nobody but the relay itself knows them."""
    depot, config = postgres_depot, postgres_depot.config(tmp_path)
    assert relay_status(depot.settings())["breakers"] is None
    with config.open("a") as file:
        file.write(f'[health]\nlisten = "127.0.0.1:{free_port()}"\n')
    settings = inorder.Settings.load(config)
    assert relay_status(settings)["breakers"] is None, "nobody answers yet"
    with RelayService(settings, config, lambda: settings):
        wanted = {"outbox": "closed", "missing": "closed"}
        eventually(lambda: relay_status(settings)["breakers"] == wanted)
