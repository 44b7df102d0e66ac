"""A shard goes when its loop has stopped, which it shows by asking again after a no."""

from __future__ import annotations

import threading

import pytest

from inorder.relay.leadership.share import HandOver


@pytest.mark.parametrize(
    ("answers", "is_idle"),
    [
        ([], True),
        ([False], True),
        ([True], False),
        ([True, True], False),
        ([True, False], False),
        ([True, False, False], True),
        ([True, False, True], False),
        ([True, False, True, False], False),
        ([True, False, True, False, False], True),
        ([False, True, False], False),
    ],
)
def test_a_loop_has_stopped_when_it_asks_again_after_a_no(answers: list[bool], is_idle: bool) -> None:
    notice = HandOver()
    for answer in answers:
        notice.record(answer)
    assert notice.is_idle is is_idle
    assert notice.wait(0) is is_idle
    assert notice.wait(-1) is is_idle


def test_a_loop_that_ended_need_not_ask_again() -> None:
    notice = HandOver()
    notice.record(True)
    notice.record(False)
    notice.stopped()
    assert notice.is_idle
    notice.record(True)
    notice.record(False)
    assert not notice.is_idle, "an earlier no does not count"


def test_whoever_waits_goes_on_as_soon_as_the_loop_stops() -> None:
    notice = HandOver()
    notice.record(True)
    loop = threading.Thread(target=notice.stopped)
    loop.start()
    assert notice.wait(30)
    loop.join()
