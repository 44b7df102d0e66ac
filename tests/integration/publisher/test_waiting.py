"""Backend `kafka`: on return all is acknowledged, and an error tells what was sent and what was not."""

from __future__ import annotations

import os
import signal
import threading
from datetime import UTC, datetime

import pytest

import inorder
from inorder.embedded import Kafka
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError, PublishRefusedError, PublishUnfinishedError
from inorder.model.message import HeaderValue
from tests.integration.publisher.conftest import (
    LARGE,
    LIMIT,
    Make,
    alter_topic,
    expected_by_key,
    numbered,
    values_by_key,
)


@pytest.mark.full
def test_a_list_is_on_the_topic_when_the_call_returns(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3)
    messages = numbered(unique, 25_000)
    make(backend="kafka").publish_list(messages)
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages)


def test_everything_of_a_message_is_carried(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    headers: list[tuple[str, HeaderValue]] = [("trace", "1"), ("trace", b"\xff"), ("none", None)]
    publisher = make(backend="kafka")
    publisher.publish(inorder.Message(unique, key="k", value={"a": 1}, headers=headers, partition=2, timestamp=at))
    publisher.publish(inorder.Message(unique, key="gone", value=None))
    first, tombstone = sorted(
        read_back({"bootstrap.servers": kafka_bootstrap}, unique), key=lambda one: one.key != b"k"
    )
    assert (first.key, first.value, first.partition) == (b"k", b'{"a":1}', 2)
    assert first.headers == (("trace", b"1"), ("trace", b"\xff"), ("none", None))
    assert first.timestamp_ms == int(at.timestamp() * 1000)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"gone", None, ())


def test_the_partitioner_of_the_topic_is_respected(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 4)
    publisher = make(backend="kafka", topics={unique: {"partitioner": "id-modulo"}})
    publisher.publish_list([inorder.Message(unique, key=id, value="x") for id in range(12)])
    found = {(record.key, record.partition) for record in read_back({"bootstrap.servers": kafka_bootstrap}, unique)}
    assert found == {(str(id).encode(), id % 4) for id in range(12)}


@pytest.mark.full
def test_a_record_too_large_in_the_middle_stops_its_key_and_sending_the_unsent_again_gives_each_once(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3, {"max.message.bytes": str(LIMIT)})
    messages = numbered(unique, 2000)
    large = inorder.Message(unique, key="3", value=LARGE)
    messages.insert(1000, large)
    publisher = make(backend="kafka")
    with pytest.raises(PublishRefusedError, match="MSG_SIZE_TOO_LARGE") as caught:
        publisher.publish_list(messages)
    error = caught.value
    assert error.refused is large
    assert large in error.unsent
    assert not error.in_doubt
    assert isinstance(error, inorder.PermanentError)
    # Each message is in one of the two, in the order of the call, and the topic holds exactly what was sent.
    assert sorted([*error.sent, *error.unsent], key=messages.index) == messages
    assert list(error.unsent) == sorted(error.unsent, key=messages.index)
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(list(error.sent))
    # Of the refused key, nothing behind it went.
    assert not any(message.key == "3" and messages.index(message) > 1000 for message in error.sent)

    alter_topic(kafka_bootstrap, unique, {"max.message.bytes": "1000000"})
    publisher.publish_list(error.unsent)
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages)


def test_a_record_too_large_as_the_very_first_lets_nothing_of_its_key_pass(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1, {"max.message.bytes": str(LIMIT)})
    messages = [inorder.Message(unique, key="k", value=LARGE), *numbered(unique, 50, keys=2)]
    publisher = make(backend="kafka")
    with pytest.raises(PublishRefusedError) as caught:
        publisher.publish_list(messages)
    assert caught.value.refused is messages[0]
    publisher.publish_list([message for message in caught.value.unsent if message is not messages[0]])
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages[1:])


def test_what_the_client_itself_finds_too_large_is_refused_the_same_way(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    topics = {unique: {"kafka": {"message.max.bytes": LIMIT}}}
    messages = [*numbered(unique, 10), inorder.Message(unique, key="1", value=LARGE), *numbered(unique, 10)]
    with pytest.raises(PublishRefusedError) as caught:
        make(backend="kafka", topics=topics).publish_list(messages)
    assert caught.value.refused is messages[10]
    assert [*caught.value.sent] == messages[:10]
    assert [*caught.value.unsent] == messages[10:]
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages[:10])


@pytest.mark.full
def test_with_the_broker_away_the_call_ends_in_time_and_the_unsent_arrive_once_when_it_is_back(
    make: Make, own_broker: Kafka, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": own_broker.bootstrap}, unique, 1)
    publisher = make(bootstrap=own_broker.bootstrap, backend="kafka", timeout_seconds=10)
    first, second = numbered(unique, 10), numbered(unique, 500)
    publisher.publish_list(first)
    own_broker.kill()
    with pytest.raises(PublishUnfinishedError, match=r"within 10 s") as caught:
        publisher.publish_list(second)
    assert isinstance(caught.value, inorder.TransientError)
    assert (list(caught.value.sent), list(caught.value.unsent)) == ([], second)
    own_broker.restart()
    # Nobody could know that the broker was killed before it got them, so they are called in doubt.
    assert set(caught.value.in_doubt) <= set(second)
    make(bootstrap=own_broker.bootstrap, backend="kafka").publish_list(caught.value.unsent)
    assert values_by_key(own_broker.bootstrap, unique) == expected_by_key([*first, *second])


@pytest.mark.full
def test_a_broker_that_stops_answering_leaves_the_messages_in_doubt_and_sending_them_again_loses_none(
    make: Make, own_broker: Kafka, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": own_broker.bootstrap}, unique, 1)
    publisher = make(bootstrap=own_broker.bootstrap, backend="kafka", timeout_seconds=3)
    publisher.publish(inorder.Message(unique, key="k", value="before"))
    messages = [inorder.Message(unique, key="k", value=str(number)) for number in range(3)]
    os.kill(own_broker.pids[0], signal.SIGSTOP)
    try:
        with pytest.raises(PublishUnfinishedError) as caught:
            publisher.publish_list(messages)
    finally:
        os.kill(own_broker.pids[0], signal.SIGCONT)
    assert list(caught.value.unsent) == messages
    # In doubt once they are handed over. Where the routes were too old by then, they were waited for and nothing was.
    assert list(caught.value.in_doubt) in (messages, [])
    make(bootstrap=own_broker.bootstrap, backend="kafka").publish_list(caught.value.unsent)
    # The broker may have taken what it had in its socket: the first of them, in order, before they came again.
    values = [b"0", b"1", b"2"]
    runs = [[b"before", *values[:taken], *values] for taken in range(len(values) + 1)]
    assert values_by_key(own_broker.bootstrap, unique)[b"k"] in runs


@pytest.mark.full
def test_a_broker_that_was_never_there_is_named(make: Make, unique: str) -> None:
    publisher = make(bootstrap="127.0.0.1:9", backend="kafka", timeout_seconds=4)
    with pytest.raises(PublishUnfinishedError, match="within 4 s") as caught:
        publisher.publish(inorder.Message(unique, key="k", value="v"))
    assert len(caught.value.unsent) == 1
    assert caught.value.in_doubt == ()
    assert unique in str(caught.value)


def test_calls_from_many_threads_keep_the_order_of_each(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3)
    publisher = make(backend="kafka")

    def work(thread: int) -> None:
        for number in range(50):
            publisher.publish(inorder.Message(unique, key=str(thread), value=str(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = [str(number).encode() for number in range(50)]
    assert values_by_key(kafka_bootstrap, unique) == {str(thread).encode(): ordered for thread in range(8)}


def test_one_callers_bad_record_does_not_disturb_another_caller(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1, {"max.message.bytes": str(LIMIT)})
    publisher = make(backend="kafka")
    refused: list[inorder.PublishError] = []

    def careless() -> None:
        for _ in range(5):
            try:
                publisher.publish(inorder.Message(unique, key="large", value=LARGE))
            except inorder.PublishError as error:
                refused.append(error)

    other = threading.Thread(target=careless)
    other.start()
    for number in range(200):
        publisher.publish(inorder.Message(unique, key="good", value=str(number)))
    other.join()
    assert len(refused) == 5
    assert values_by_key(kafka_bootstrap, unique) == {b"good": [str(number).encode() for number in range(200)]}


def test_properties_of_a_topic_reach_its_producer(make: Make, kafka_bootstrap: str, unique: str) -> None:
    topics = {unique: {"kafka": {"compression.type": "gzip", "no.such.property": 1}}}
    publisher = make(backend="kafka", topics=topics)
    publisher.publish(inorder.Message(f"{unique}-other", value="unharmed"))
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        publisher.publish(inorder.Message(unique, value="x"))


def test_topics_with_the_same_properties_share_a_producer(make: Make, kafka_bootstrap: str, unique: str) -> None:
    names = [f"{unique}-{letter}" for letter in "abcd"]
    topics = {names[0]: {"kafka": {"linger.ms": 1}}, names[1]: {"kafka": {"linger.ms": 1}}, names[2]: {}}
    before = set(threading.enumerate())
    publisher = make(backend="kafka", topics=topics)
    publisher.publish_list([inorder.Message(name, value="x") for name in names])
    own = set(threading.enumerate()) - before
    assert len(own) == 2
    publisher.close()
    assert not any(thread.is_alive() for thread in own)


def test_a_closed_publisher_sends_nothing_and_says_so(make: Make, unique: str) -> None:
    publisher = make(backend="kafka")
    publisher.publish(inorder.Message(unique, value="1"))
    publisher.close()
    publisher.close()
    with pytest.raises(PublishUnfinishedError, match="closed") as caught:
        publisher.publish(inorder.Message(unique, value="2"))
    assert [message.value for message in caught.value.unsent] == ["2"]
