"""A polling relay and transactions that stay open for long: whenever they commit, their rows are delivered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from inorder.model.message import Message
from tests.conftest import Eventually
from tests.integration.relay.conftest import alter_topic
from tests.integration.relay.depot import TOO_LARGE, Depot, numbered

HELD_SECONDS = 10.0
BUDGET = {"missing_wait_ms": 1_000, "missing_max_retries": 3}
"""Three seconds."""

pytestmark = pytest.mark.fault


@pytest.fixture(params=["postgres", "mariadb"])
def depot(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str) -> Iterator[Depot]:
    """On each database in which several transactions write at once."""
    with ExitStack() as stack:
        yield Depot(request.getfixturevalue(f"{request.param}_url"), kafka_bootstrap, unique, stack)


def test_a_row_that_commits_after_ten_seconds_is_delivered(depot: Depot, eventually: Eventually) -> None:
    """With the default budget, which is much longer; ids that were rolled back meanwhile are distinguished."""
    topic = depot.topic()
    depot.relay(polling={"missing_wait_ms": 20_000, "missing_max_retries": 5})
    with depot.transaction() as late:
        depot.add(late, Message(topic, key="late", value="late"))
        depot.roll_back(Message(topic, key="never", value="never"))
        depot.publish(*numbered(topic, range(5)))
        eventually(lambda: depot.state().offset == 7)
        threading.Event().wait(HELD_SECONDS)
        assert b"late" not in depot.values(topic)
    eventually(depot.is_done)
    assert depot.values(topic) == [b"0", b"1", b"2", b"3", b"4", b"late"]
    assert depot.state().exceeded == 0


def test_a_row_that_commits_long_after_the_missing_budget_is_delivered(depot: Depot, eventually: Eventually) -> None:
    """A refused record shows that the budget has run out; the open transaction outlasts it three times more.

    For half of that time a second owner runs, which knows the row only from the table of missing events.
    """
    topic, small = depot.topic(), depot.topic("small")
    alter_topic(depot.bootstrap, small, {"max.message.bytes": "2000"})
    first = depot.relay(polling=BUDGET)
    with depot.transaction() as late:
        depot.add(late, Message(topic, key="late", value="late"))
        depot.publish(Message(small, key="bad", value=TOO_LARGE), *numbered(topic, range(5)))
        eventually(lambda: depot.state().exceeded == 1)
        threading.Event().wait(HELD_SECONDS / 2)
        assert (depot.state().missing, depot.state().offset) == (1, 7)
        assert first.stop(60)
        depot.relay(polling=BUDGET)
        threading.Event().wait(HELD_SECONDS / 2)
        depot.publish(Message(topic, key="other", value="later"))
        eventually(lambda: b"later" in depot.values(topic))
        assert (depot.state().missing, depot.state().exceeded) == (1, 1)
    eventually(depot.is_done)
    assert depot.values(topic) == [b"0", b"1", b"2", b"3", b"4", b"later", b"late"]
    assert depot.state().exceeded == 1, "only the record that the broker refuses"
