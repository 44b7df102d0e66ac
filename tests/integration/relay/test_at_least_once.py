"""Delivery `at-least-once`: nothing is lost or overtaken, and repeats come only with crashes and unknown outcomes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.embedded import Kafka
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import ReadRecord, read_back
from inorder.outbox import Outbox
from inorder.testing.checker import Verdict, check_delivery
from tests.conftest import Eventually
from tests.contract.shard_log.making import publish
from tests.integration.relay.conftest import Bench
from tests.operating import exceeded_rows, outbox_numbers, settle_exceeded

LIMIT = 20_000
LARGE = random.Random(1).randbytes(2 * LIMIT)  # nothing that compression could save
KEYS = 7


def settings_of(bench: Bench, bootstrap: str | None = None, **relay: object) -> inorder.Settings:
    ours: dict[str, Any] = {"delivery": "at-least-once", "leadership": "database", **relay}
    return bench.settings(bootstrap=bootstrap, **ours)


def numbered(topic: str, first: int, count: int) -> list[inorder.Message]:
    return [inorder.Message(topic, key=str(n % KEYS), value=str(n // KEYS + 1)) for n in range(first, first + count)]


def verdict_of(records: list[ReadRecord], count: int) -> Verdict:
    committed = [(str(n % KEYS).encode(), n // KEYS + 1) for n in range(count)]
    return check_delivery(committed, [(record.key, int(record.value or b"0")) for record in records])


def test_rows_are_carried_in_order_over_many_batches_and_none_is_repeated(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 4)
    bench.publish(*numbered(unique, 0, 5000))
    with inorder.Relay(settings_of(bench, batch_size=300)) as relay:
        eventually(lambda: bench.count() == 0)
        bench.publish(*numbered(unique, 5000, 100))
        eventually(lambda: bench.count() == 0)
        eventually(lambda: relay.published == 5100)
    verdict = verdict_of(list(read_back(bench.properties, unique)), 5100)
    assert verdict.holds, verdict


def test_a_topic_that_is_not_there_yet_is_made_by_its_first_row(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    with inorder.Relay(settings_of(bench)):
        bench.publish(inorder.Message(unique, key="k", value="1"), inorder.Message(unique, value="no key"))
        eventually(lambda: bench.count() == 0)
    assert {record.value for record in read_back(bench.properties, unique)} == {b"1", b"no key"}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Kafka]:
    with Kafka(tmp_path) as broker:
        yield broker


def has_grown(count: Callable[[], int], above: int) -> bool:
    return count() > above


@pytest.mark.full
def test_a_broker_killed_under_load_loses_nothing_and_keeps_the_order(
    bench: Bench, own_broker: Kafka, unique: str, eventually: Eventually
) -> None:
    properties = {"bootstrap.servers": own_broker.bootstrap}
    ensure_topic(properties, unique, 4)
    settings = settings_of(bench, own_broker.bootstrap, batch_size=200)
    stop, written = threading.Event(), [0]

    def write() -> None:
        with bench.connect() as connection:
            while not stop.wait(0.005):
                Outbox().publish_list(connection, numbered(unique, written[0], 20))
                connection.commit()
                written[0] += 20

    with inorder.Relay(settings) as relay:
        writer = threading.Thread(target=write)
        writer.start()
        for outage in (1, 2):
            eventually(partial(has_grown, lambda: relay.published, 500 * outage))
            own_broker.kill()
            eventually(partial(has_grown, bench.count, bench.count() + 500))
            own_broker.start()
        stop.set()
        writer.join()
        eventually(lambda: bench.count() == 0, 120)
    verdict = verdict_of(list(read_back(properties, unique)), written[0])
    assert replace(verdict, duplicated=0).holds, verdict
    assert exceeded_rows(settings) == [], "an outage uses up no attempts"


def test_a_relay_that_dies_between_sending_and_purging_repeats_and_loses_nothing(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    """And the header of a repeat is that of the first one, so that a reader can drop it."""
    from inorder.kafka.idempotent_producer import IdempotentShardLog
    from inorder.relay.stores.ports import Scan

    bench.publish(*numbered(unique, 0, 50))
    store, dying = bench.store(), IdempotentShardLog(bench.properties, id_header="id")
    ensure_topic(bench.properties, unique, 1)
    dying.take_over()
    publish(dying, store.read(Scan(above=0), 20).rows, b"")
    dying.close()
    store.close()
    with inorder.Relay(settings_of(bench)):
        eventually(lambda: bench.count() == 0)
    records = list(read_back(bench.properties, unique))
    verdict = verdict_of(records, 50)
    assert verdict.duplicated == 20
    assert replace(verdict, duplicated=0).holds, verdict
    first_of_each = {dict(record.headers)["id"]: record for record in reversed(records)}
    kept = [record for record in records if first_of_each[dict(record.headers)["id"]] is record]
    assert verdict_of(kept, 50).holds


@pytest.mark.full
def test_a_refused_record_parks_its_key_and_nothing_of_its_key_passes(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 4, {"max.message.bytes": str(LIMIT)})
    settings = settings_of(bench, max_attempts=2)
    bench.publish(
        *(inorder.Message(unique, key=f"k{number}", value="1") for number in range(150)),
        inorder.Message(unique, key="bad", value="1"),
        inorder.Message(unique, key="bad", value=LARGE),
        *(inorder.Message(unique, key="bad", value=str(number)) for number in range(3, 300)),
        *(inorder.Message(unique, key=f"k{number}", value="2") for number in range(150)),
    )

    def values(key: bytes) -> list[bytes]:
        return [(r.value or b"")[:10] for r in read_back(bench.properties, unique) if r.key == key]

    with inorder.Relay(settings) as relay:
        eventually(lambda: relay.is_leader)
        (row,) = eventually(lambda: exceeded_rows(settings))
        assert (row.key, row.attempts, row.parks) == (b"bad", 2, True)
        eventually(lambda: bench.count() == 297)
        numbers = outbox_numbers(settings)
        assert (numbers["exceeded"], numbers["parked_keys"]) == (1, 1)
        assert values(b"bad") == [b"1"]
        eventually(lambda: relay.published == 301)
        bench.alter_topic(unique, {"max.message.bytes": "1000000"})
        settle_exceeded(settings, "retry", "the topic's limit was raised", id=row.id)
        eventually(lambda: bench.count() == 0)
    assert values(b"bad") == [b"1", LARGE[:10], *(str(number).encode() for number in range(3, 300))]
    assert all(values(b"k%d" % number) == [b"1", b"2"] for number in range(0, 150, 50)), "nothing is repeated"


def test_of_two_instances_the_second_goes_on_where_the_first_stopped(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    ensure_topic(bench.properties, unique, 4)
    settings = settings_of(bench, batch_size=100)
    with inorder.Relay(settings) as first:
        eventually(lambda: first.is_leader)
        with inorder.Relay(settings) as second:
            bench.publish(*numbered(unique, 0, 2000))
            eventually(lambda: first.published > 0)
            first.stop()
            bench.publish(*numbered(unique, 2000, 500))
            eventually(lambda: bench.count() == 0)
            eventually(lambda: second.published > 0)
    verdict = verdict_of(list(read_back(bench.properties, unique)), 2500)
    assert replace(verdict, duplicated=0).holds, verdict
