"""The connection between driver and task: authentication, reports, and how each end detects the loss of the other."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from inorder.embedded.server import free_port
from inorder.engines.driver_channel import PORTS, DriverConnection, DriverServer, TaskReport
from inorder.engines.placement import Assignment
from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import UnreachableError
from inorder.model.partitioning import Place
from tests.conftest import Eventually

HOST = "127.0.0.1"
PLACE: Place = ("upsert", 2)
OTHER: Place = ("upsert", 3)
OUTCOME = SliceOutcome("upsert", 2, next_offset=9, read=3, applied=2, rejected=1)


class Office:
    """A server and the messages it received."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, TaskReport]] = []
        self.seen: dict[Place, int] = {PLACE: 6}
        self.came: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.refused: set[int] = set()
        self.server = DriverServer(HOST, HOST, self)
        self.address = self.server.address

    def joined(self, index: int, attempt: int) -> Assignment | None:
        self.came.append((index, attempt))
        return None if index in self.refused else Assignment(1, (PLACE,))

    def expected(self, places: Collection[Place]) -> Mapping[Place, int]:
        return {place: self.seen[place] for place in places if place in self.seen}

    def reported(self, index: int, report: TaskReport) -> None:
        self.heard.append((index, report))

    def left(self, index: int) -> None:
        self.gone.append(index)


@pytest.fixture
def office() -> Iterator[Office]:
    found = Office()
    yield found
    found.server.close()


def test_a_task_learns_the_pointers_that_were_seen_and_its_reports_are_heard(
    office: Office, eventually: Eventually
) -> None:
    connection = DriverConnection(office.address, 3)
    assert (connection.assignment.places, connection.expected) == ((PLACE,), {PLACE: 6})
    assert connection.check()
    connection.report(TaskReport([OUTCOME], {"read": 0.5, "apply": 1.5}))
    eventually(lambda: office.heard == [(3, TaskReport([OUTCOME], {"read": 0.5, "apply": 1.5}))], 10)
    connection.close()


def test_a_task_learns_of_partitions_that_move_and_says_when_it_follows(office: Office, eventually: Eventually) -> None:
    connection = DriverConnection(office.address, 3, attempt=17)
    assert office.came == [(3, 17)]
    office.server.assign(3, Assignment(2, ()))
    office.server.assign(3, Assignment(3, (PLACE, OTHER)))
    eventually(lambda: connection.check() and connection.assignment == Assignment(3, (PLACE, OTHER)), 10)
    assert connection.expected == {PLACE: 6}, "the other one was never seen committed"
    connection.report(TaskReport([], {}, follows=3, ended=[OTHER]))
    eventually(lambda: office.heard == [(3, TaskReport([], {}, follows=3, ended=(OTHER,)))], 10)
    connection.close()
    eventually(lambda: office.gone == [3], 10)


def test_one_task_is_asked_to_end_and_the_others_go_on(office: Office, eventually: Eventually) -> None:
    leaving, staying = (DriverConnection(office.address, index) for index in range(2))
    office.server.end(0)
    eventually(lambda: not leaving.check(), 10)
    assert staying.check()
    for each in (leaving, staying):
        each.close()


def test_a_task_that_is_not_wanted_any_more_ends(office: Office) -> None:
    office.refused.add(7)
    connection = DriverConnection(office.address, 7)
    assert not connection.is_open
    connection.close()


def test_what_a_task_counts_that_applies_no_slices_is_heard(office: Office, eventually: Eventually) -> None:
    connection = DriverConnection(office.address, 0)
    connection.report(TaskReport([], {}, {"published": 7}))
    eventually(lambda: [report.totals for _, report in office.heard] == [{"published": 7}], 10)
    connection.close()


def test_what_the_driver_saw_since_is_told_to_a_task_that_is_begun_anew(office: Office) -> None:
    DriverConnection(office.address, 0).close()
    office.seen[PLACE] = 8
    again = DriverConnection(office.address, 0)
    assert again.expected == {PLACE: 8}
    again.close()


def test_hanging_up_ends_the_task_and_its_last_words_are_heard(office: Office, eventually: Eventually) -> None:
    connection = DriverConnection(office.address, 1)
    office.server.request_stop()
    eventually(lambda: not connection.check(), 10)
    connection.report(TaskReport([OUTCOME], {}))
    connection.close()
    eventually(lambda: [index for index, _ in office.heard] == [1], 10)


def test_what_a_task_said_before_it_ended_is_heard_before_the_switchboard_closes(office: Office) -> None:
    connection = DriverConnection(office.address, 1)
    for _ in range(200):
        connection.report(TaskReport([OUTCOME], {}))
    connection.close()
    office.server.close()
    assert len(office.heard) == 200


def test_a_driver_that_is_gone_ends_the_task(eventually: Eventually) -> None:
    office = Office()
    connection = DriverConnection(office.address, 1)
    office.server.close()
    eventually(lambda: not connection.check(), 10)
    connection.report(TaskReport([OUTCOME], {}))  # is lost, and raises nothing
    assert not connection.is_open
    connection.close()


def test_a_task_that_calls_after_the_end_is_sent_home(office: Office) -> None:
    office.server.request_stop()
    connection = DriverConnection(office.address, 1)
    assert not connection.check()
    assert connection.expected == {}
    connection.close()


def test_of_two_tasks_on_one_index_the_older_one_ends(office: Office, eventually: Eventually) -> None:
    old = DriverConnection(office.address, 5)
    new = DriverConnection(office.address, 5)
    eventually(lambda: not old.check(), 10)
    assert new.check()
    old.close()
    assert new.check()
    assert office.gone == [], "one of them is still there"
    new.close()


def test_a_caller_without_the_token_is_turned_away_and_learns_nothing(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        connection = DriverConnection(replace(office.address, token="guessed"), 0)
        assert not connection.is_open
        assert connection.expected == {}
    assert "pipeline.connection_refused" in caplog.text
    connection.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b'{"token": 7}\n',
        b"[]\n",
        '{"token": "é", "index": 0}\n'.encode(),
        b"x" * 10_000,
    ],
)
def test_a_stranger_cannot_disturb_those_who_are_let_in(office: Office, said: bytes) -> None:
    with socket.create_connection((HOST, office.address.port), 10) as stranger:
        stranger.sendall(said)
        connection = DriverConnection(office.address, 0)
        assert connection.check()
        connection.close()


def test_a_driver_that_cannot_be_reached_is_told_with_its_address(office: Office) -> None:
    office.server.close()
    with pytest.raises(UnreachableError, match=f"cannot reach its driver at {HOST}:{office.address.port}"):
        DriverConnection(office.address, 0)


def test_looking_waits_for_nothing(office: Office) -> None:
    connection = DriverConnection(office.address, 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(connection.check).result(timeout=2)
    connection.close()


def test_the_driver_listens_at_the_first_free_port_of_a_range(office: Office) -> None:
    first = free_port()
    servers = [DriverServer(HOST, HOST, office, first) for _ in range(2)]
    try:
        ports = [server.address.port for server in servers]
        assert ports[0] < ports[1]
        assert all(first <= port < first + PORTS for port in ports)
    finally:
        for server in servers:
            server.close()
