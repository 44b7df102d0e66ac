"""Requests of a transaction reach the broker late: nothing is lost, doubled or out of order."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from inorder.engines import in_process
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import ensure_topic
from inorder.kafka.fenced_producer import ClientBackoff
from inorder.kafka.readers import read_back
from inorder.testing.checker import check_delivery
from inorder.topics.stores.kafka_copy import CopyWork
from tests.fault.fleet import Fleet, NewFleet, Way
from tests.injections import INJECTIONS
from tests.network import Direction, KafkaNetwork, ProxiedKafka

POLLING = """\
[relay.polling]
queue_wait_ms = 20
missing_wait_ms = 300
missing_max_retries = 2
"""
FEW = 8
MANY = 180
"""Of each strategy: together more than 500."""
WAYS = [
    Way("drain", leadership="database", shards=4, error_rate=0.02),
    Way("mark-purge", "goharvest", leadership="database", shards=4, error_rate=0.02),
    Way("polling", "trendyol", leadership="database", error_rate=0.02, more=POLLING),
]
"""Every strategy that is exactly-once; topic-lock is not. The errors are those after which transactions are aborted."""
PAUSES = 12
SOCKET_MS = 1_000
"""How long a client waits for an answer; it looks every second whether that has passed."""
PAUSE_SECONDS = (3.0, 5.0)
KILLS = 8
ONE_WAY_CUTS = 6
COPIED = 3_000
KEYS = 10


@pytest.fixture
def proxy() -> Iterator[KafkaNetwork]:
    with KafkaNetwork() as found:
        yield found


@pytest.fixture
def broker(tmp_path: Path, proxy: KafkaNetwork) -> Iterator[ProxiedKafka]:
    with ProxiedKafka(tmp_path / "kafka", proxy) as found:
        yield found


def delay(fleet: Fleet, proxy: KafkaNetwork, many: int, **share: float) -> None:
    """Runs a relay under load until so many of its requests were delayed, and compares."""
    with fleet.load:
        fleet.start_one()
        fleet.wait_for_progress()
        proxy.hold(**share)
        fleet.eventually(partial(has_held, proxy, many), 10 * many)
        proxy.release_all()
        fleet.wait_for_progress()
    compare(fleet, proxy)


def has_held(proxy: KafkaNetwork, many: int) -> bool:
    return proxy.total() >= many


def compare(fleet: Fleet, proxy: KafkaNetwork) -> None:
    verdict = fleet.verdict()
    fleet.history.append(f"{dict(proxy.counts)}, {fleet.said('relay.producers_renewed')} renewals: {verdict}")
    assert verdict.holds, (verdict, proxy.counts)
    assert fleet.said("kafka.answer_was_late"), "no client had reason to send a request again"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("broker")
def test_a_delayed_end_of_a_transaction_does_not_end_the_next_one(new_fleet: NewFleet, proxy: KafkaNetwork) -> None:
    """And the client repeats no request sooner than the fenced producer assumes."""
    fleet = new_fleet(Way("drain", leadership="database"), bootstrap=proxy.address)
    delay(fleet, proxy, FEW, end_txn=0.3)
    assert proxy.counts["repeated"] >= FEW, "what was held was sent again"
    assert min(proxy.waits) > ClientBackoff.of({}).end_seconds


@pytest.mark.fault
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_many_delayed_ends_of_transactions_lose_and_double_nothing(
    new_fleet: NewFleet, proxy: KafkaNetwork, way: Way
) -> None:
    delay(new_fleet(way, bootstrap=proxy.address), proxy, MANY, end_txn=0.3)


@pytest.mark.fault
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_delay_of_any_request_loses_or_doubles_a_row(new_fleet: NewFleet, proxy: KafkaNetwork, way: Way) -> None:
    share = {"end_txn": 0.1, "produce": 0.05, "add_partitions": 0.05, "init_producer_id": 0.2}
    delay(new_fleet(way, bootstrap=proxy.address), proxy, MANY // 3, **share)


@pytest.mark.fault
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [replace(way, error_rate=0.0) for way in WAYS], ids=str)
def test_a_paused_broker_under_impatient_clients_loses_and_doubles_nothing(
    new_fleet: NewFleet, broker: ProxiedKafka, proxy: KafkaNetwork, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused before it reads an EndTxn, which the client may repeat meanwhile."""
    fleet, chance = new_fleet(way, bootstrap=proxy.address), random.Random(1)
    monkeypatch.setenv("INORDER_KAFKA__SOCKET_TIMEOUT_MS", str(SOCKET_MS))  # for the relay only
    pid = broker.pids[0]
    with fleet.load:
        fleet.start_one()
        for _ in range(PAUSES):
            fleet.wait_for_progress()
            assert proxy.at_next_end(partial(os.kill, pid, signal.SIGSTOP)).wait(60)
            INJECTIONS.note("SIGSTOP of Kafka before an EndTxn")
            threading.Event().wait(chance.uniform(*PAUSE_SECONDS))
            os.kill(pid, signal.SIGCONT)
        fleet.wait_for_progress()
    compare(fleet, proxy)


@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("direction", Direction)
def test_a_network_that_is_cut_in_one_direction_loses_and_doubles_nothing(
    new_fleet: NewFleet, proxy: KafkaNetwork, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has the requests and the client no answers, or the client waits for what the broker never heard."""
    fleet, chance = new_fleet(Way("drain", leadership="database"), bootstrap=proxy.address), random.Random(2)
    monkeypatch.setenv("INORDER_KAFKA__SOCKET_TIMEOUT_MS", str(SOCKET_MS))  # for the relay only
    with fleet.load:
        fleet.start_one()
        for _ in range(ONE_WAY_CUTS):
            fleet.wait_for_progress()
            proxy.silence(direction)
            threading.Event().wait(chance.uniform(*PAUSE_SECONDS))
            proxy.silence()
        fleet.wait_for_progress()
    verdict = fleet.verdict()
    assert verdict.holds, verdict


@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("broker")
def test_a_relay_that_is_killed_while_a_request_of_it_is_delayed_loses_and_doubles_nothing(
    new_fleet: NewFleet, proxy: KafkaNetwork
) -> None:
    """The request arrives at its successor's first transactions."""
    fleet = new_fleet(Way("drain", leadership="database", shards=2), bootstrap=proxy.address)
    with fleet.load:
        fleet.start_staggered(2, 1.0)
        fleet.wait_for_progress()
        proxy.hold(end_txn=0.3)
        for _ in range(KILLS):
            fleet.eventually(partial(has_held, proxy, proxy.total() + 1), 60)
            fleet.kill_leader()
        proxy.release_all()
        fleet.wait_for_progress()
    compare(fleet, proxy)


@pytest.mark.fault
@pytest.mark.timeout(900)
def test_delayed_requests_of_a_copy_double_no_record_and_set_no_offset_back(
    broker: ProxiedKafka, proxy: KafkaNetwork, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "SLICE_RECORDS", 40)
    direct, copy = {"bootstrap.servers": broker.bootstrap}, f"{unique}.copy"
    for topic in (unique, copy):
        ensure_topic(direct, topic, 2)
    producer = Producer(direct)
    sent = [(str(number % KEYS).encode(), number // KEYS + 1) for number in range(COPIED)]
    for key, place in sent:
        producer.produce(unique, str(place), key)
    assert not producer.flush(60)
    proxied: dict[str, object] = {"bootstrap.servers": proxy.address}
    proxy.hold(end_txn=0.2, txn_offset_commit=0.2)
    InProcess(CopyWork(tuple(proxied.items()), unique, copy), KafkaSource(direct)).run(threading.Event(), once=True)
    proxy.release_all()
    found = [(record.key, int(record.value or b"0")) for record in read_back(direct, copy)]
    verdict = check_delivery(sent, found)
    assert verdict.holds, (verdict, proxy.counts)
    assert proxy.counts["TXN_OFFSET_COMMIT"], proxy.counts
    assert proxy.counts["repeated"], proxy.counts
