"""The line between driver and task: who is let in, what is heard, and how either end learns that the other is gone."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from inorder.engines.driver_channel import Line, Report, Switchboard
from inorder.engines.slice_work import SliceOutcome
from inorder.kafka.admin import Place
from inorder.model.errors import UnreachableError
from tests.conftest import Eventually

HOST = "127.0.0.1"
OUTCOME = SliceOutcome("upsert", 2, next_offset=9, read=3, applied=2, rejected=1)


class Office:
    """A switchboard and what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Report]] = []
        self.expected: dict[Place, int] = {("upsert", 2): 6}
        self.switchboard = Switchboard(HOST, HOST, lambda: self.expected, self._hear)
        self.address = self.switchboard.address

    def _hear(self, seat: int, report: Report) -> None:
        self.heard.append((seat, report))


@pytest.fixture
def office() -> Iterator[Office]:
    found = Office()
    yield found
    found.switchboard.close()


def test_a_task_learns_the_pointers_that_were_seen_and_its_reports_are_heard(
    office: Office, eventually: Eventually
) -> None:
    line = Line(office.address, 3)
    assert line.expected == {("upsert", 2): 6}
    assert line.look()
    line.report(Report([OUTCOME], {"read": 0.5, "apply": 1.5}))
    eventually(lambda: office.heard == [(3, Report([OUTCOME], {"read": 0.5, "apply": 1.5}))], 10)
    line.close()


def test_what_a_task_counts_that_applies_no_slices_is_heard(office: Office, eventually: Eventually) -> None:
    line = Line(office.address, 0)
    line.report(Report([], {}, {"published": 7}))
    eventually(lambda: [report.totals for _, report in office.heard] == [{"published": 7}], 10)
    line.close()


def test_what_the_driver_saw_since_is_told_to_a_task_that_is_begun_anew(office: Office) -> None:
    Line(office.address, 0).close()
    office.expected["upsert", 2] = 8
    again = Line(office.address, 0)
    assert again.expected == {("upsert", 2): 8}
    again.close()


def test_hanging_up_ends_the_task_and_its_last_words_are_heard(office: Office, eventually: Eventually) -> None:
    line = Line(office.address, 1)
    office.switchboard.hang_up()
    eventually(lambda: not line.look(), 10)
    line.report(Report([OUTCOME], {}))
    line.close()
    eventually(lambda: [seat for seat, _ in office.heard] == [1], 10)


def test_what_a_task_said_before_it_ended_is_heard_before_the_switchboard_closes(office: Office) -> None:
    line = Line(office.address, 1)
    for _ in range(200):
        line.report(Report([OUTCOME], {}))
    line.close()
    office.switchboard.close()
    assert len(office.heard) == 200


def test_a_driver_that_is_gone_ends_the_task(eventually: Eventually) -> None:
    office = Office()
    line = Line(office.address, 1)
    office.switchboard.close()
    eventually(lambda: not line.look(), 10)
    line.report(Report([OUTCOME], {}))  # tells nobody, and raises nothing
    assert not line.is_open
    line.close()


def test_a_task_that_calls_after_the_end_is_sent_home(office: Office) -> None:
    office.switchboard.hang_up()
    line = Line(office.address, 1)
    assert not line.look()
    assert line.expected == {}
    line.close()


def test_of_two_tasks_on_one_seat_the_older_one_ends(office: Office, eventually: Eventually) -> None:
    old = Line(office.address, 5)
    new = Line(office.address, 5)
    eventually(lambda: not old.look(), 10)
    assert new.look()
    old.close()
    assert new.look()
    new.close()


def test_a_caller_without_the_token_is_turned_away_and_learns_nothing(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        line = Line(replace(office.address, token="guessed"), 0)
        assert not line.is_open
        assert line.expected == {}
    assert "turned away" in caplog.text
    line.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b'{"token": 7}\n',
        b"[]\n",
        '{"token": "é", "seat": 0}\n'.encode(),
        b"x" * 10_000,
    ],
)
def test_a_stranger_cannot_disturb_those_who_are_let_in(office: Office, said: bytes) -> None:
    with socket.create_connection((HOST, office.address.port), 10) as stranger:
        stranger.sendall(said)
        line = Line(office.address, 0)
        assert line.look()
        line.close()


def test_a_driver_that_cannot_be_reached_is_told_with_its_address(office: Office) -> None:
    office.switchboard.close()
    with pytest.raises(UnreachableError, match=f"cannot reach its driver at {HOST}:{office.address.port}"):
        Line(office.address, 0)


def test_looking_waits_for_nothing(office: Office) -> None:
    line = Line(office.address, 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(line.look).result(timeout=2)
    line.close()
