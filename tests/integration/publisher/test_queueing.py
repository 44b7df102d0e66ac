"""Backend `kafka_async`: calls return at once, a full queue blocks them, and the end of the program flushes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import inorder
from inorder.embedded import Kafka
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import PublishRefusedError, PublishUnfinishedError
from tests.conftest import Eventually
from tests.integration.publisher.conftest import LARGE, LIMIT, Make, expected_by_key, numbered, values_by_key

NOWHERE = "127.0.0.1:9"


class Heard:
    """A callback that keeps what it heard."""

    def __init__(self) -> None:
        self.delivered: list[inorder.Message] = []
        self.failed: list[tuple[inorder.Message, inorder.InorderError]] = []

    def __call__(self, message: inorder.Message, error: inorder.InorderError | None) -> None:
        if error is None:
            self.delivered.append(message)
        else:
            self.failed.append((message, error))


@pytest.mark.full
def test_everything_arrives_in_order_and_the_callback_hears_of_each(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3)
    heard = Heard()
    publisher = make(backend="kafka_async", on_delivery=heard)
    messages = numbered(unique, 20_000)
    for start in range(0, 20_000, 100):
        publisher.publish_list(messages[start : start + 100])
    assert publisher.flush(60) == 0
    assert heard.delivered == messages
    assert heard.failed == []
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages)


def test_a_call_returns_while_nobody_answers(make: Make, unique: str) -> None:
    publisher = make(bootstrap=NOWHERE, backend="kafka_async")
    publisher.publish_list(numbered(unique, 1000))
    assert publisher.flush(0) == 1000, "it returned, and nothing had gone"


def test_a_full_queue_holds_the_caller_back_until_there_is_room_and_nothing_is_lost(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 3)
    most = 0

    def count(message: inorder.Message, error: inorder.InorderError | None) -> None:
        nonlocal most
        most = max(most, publisher.flush(0))

    publisher = make(backend="kafka_async", queue_messages=50, on_delivery=count)
    messages = numbered(unique, 3000)
    threads = [
        threading.Thread(target=publisher.publish_list, args=([one for one in messages if one.key == key],))
        for key in "0123456"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.close(60) == []
    assert 0 < most <= 50
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages)


class Blocked:
    """A call on a thread of its own, and the error with which it ends."""

    def __init__(self, publisher: inorder.Publisher, messages: list[inorder.Message]) -> None:
        self.error: inorder.PublishError | None = None
        self._publisher = publisher
        self._messages = messages
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._publisher.publish_list(self._messages)
        except inorder.PublishError as error:
            self.error = error


def test_with_nobody_to_take_it_a_full_queue_blocks_and_closing_returns_every_message(
    make: Make, unique: str, eventually: Eventually
) -> None:
    heard = Heard()
    publisher = make(bootstrap=NOWHERE, backend="kafka_async", queue_messages=10, on_delivery=heard)
    messages = numbered(unique, 25)
    blocked = Blocked(publisher, messages)
    eventually(lambda: publisher.flush(0) == 10)
    blocked.thread.join(0.5)
    assert blocked.thread.is_alive()
    left = publisher.close(0)
    blocked.thread.join(60)
    assert isinstance(blocked.error, PublishUnfinishedError)
    assert list(blocked.error.sent) == left == messages[:10]
    assert list(blocked.error.unsent) == messages[10:]
    assert [message for message, _ in heard.failed] == left


def test_the_queue_is_bounded_in_bytes_too(make: Make, unique: str, eventually: Eventually) -> None:
    publisher = make(bootstrap=NOWHERE, backend="kafka_async", queue_megabytes=1)
    messages = [inorder.Message(unique, value=bytes(400_000)) for _ in range(4)]
    blocked = Blocked(publisher, messages)
    eventually(lambda: publisher.flush(0) == 2)
    blocked.thread.join(0.3)
    assert blocked.thread.is_alive()
    assert publisher.close(0) == messages[:2]
    blocked.thread.join(60)
    assert blocked.error is not None
    assert list(blocked.error.unsent) == messages[2:]


@pytest.mark.full
def test_a_refused_record_is_told_and_all_others_go_on(make: Make, kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2, {"max.message.bytes": str(LIMIT)})
    heard = Heard()
    publisher = make(backend="kafka_async", on_delivery=heard)
    messages = numbered(unique, 1000)
    large = inorder.Message(unique, key="3", value=LARGE)
    publisher.publish_list([*messages[:500], large, *messages[500:]])
    assert publisher.close(60) == []
    ((refused, error),) = heard.failed
    assert refused is large
    assert isinstance(error, PublishRefusedError)
    assert values_by_key(kafka_bootstrap, unique) == expected_by_key(messages)


def test_a_callback_that_raises_or_publishes_harms_nobody(
    make: Make, kafka_bootstrap: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    answered: list[str] = []

    def careless(message: inorder.Message, error: inorder.InorderError | None) -> None:
        answered.append(str(message.value))
        if len(answered) == 1:
            publisher.publish_list(numbered(unique, 5))
        raise RuntimeError("careless")

    publisher = make(backend="kafka_async", queue_messages=2, on_delivery=careless)
    publisher.publish_list([inorder.Message(unique, key="x", value="1"), inorder.Message(unique, key="x", value="2")])
    assert publisher.close(60) == []
    assert len(answered) == 7
    assert "publisher.callback_failed" in caplog.text
    assert sum(len(values) for values in values_by_key(kafka_bootstrap, unique).values()) == 7


@pytest.mark.full
def test_an_outage_is_waited_out_and_everything_arrives_in_order(
    make: Make, own_broker: Kafka, unique: str, eventually: Eventually
) -> None:
    ensure_topic({"bootstrap.servers": own_broker.bootstrap}, unique, 1)
    publisher = make(bootstrap=own_broker.bootstrap, backend="kafka_async")
    first, second = numbered(unique, 10), numbered(unique, 200)
    publisher.publish_list(first)
    assert publisher.flush(60) == 0
    own_broker.stop()
    publisher.publish_list(second)
    assert publisher.flush(3) == 200
    own_broker.start()
    assert publisher.flush(60) == 0
    assert values_by_key(own_broker.bootstrap, unique) == expected_by_key([*first, *second])


PROGRAM = """
    import os, signal, sys
    import inorder

    bootstrap, topic, end = sys.argv[1:]
    settings = inorder.Settings.load(kafka={"bootstrap.servers": bootstrap}, publisher={"backend": "kafka_async"})
    publisher = inorder.Publisher(settings)
    publisher.publish_list([inorder.Message(topic, key="k", value=str(n)) for n in range(1000)])
    if end == "kill":
        publisher.flush(60)
        publisher.publish_list([inorder.Message(topic, key="k", value=str(n)) for n in range(1000, 1100)])
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raise":
        raise SystemExit(3)
"""


def run(bootstrap: str, topic: str, end: str) -> int:
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), bootstrap, topic, end]
    return subprocess.run(program, check=False, timeout=120, env=os.environ).returncode


@pytest.mark.full
@pytest.mark.parametrize(("end", "code"), [("return", 0), ("raise", 3)])
def test_the_end_of_the_program_flushes_what_is_queued(kafka_bootstrap: str, unique: str, end: str, code: int) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    assert run(kafka_bootstrap, unique, end) == code
    assert values_by_key(kafka_bootstrap, unique) == {b"k": [str(n).encode() for n in range(1000)]}


def test_a_kill_loses_only_what_was_not_flushed_and_leaves_no_gap(kafka_bootstrap: str, unique: str) -> None:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    assert run(kafka_bootstrap, unique, "kill") == -signal.SIGKILL
    found = values_by_key(kafka_bootstrap, unique)[b"k"]
    assert found == [str(n).encode() for n in range(len(found))]
    assert 1000 <= len(found) <= 1100
