"""A relay that was frozen and overtaken wakes up and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inorder.embedded.service import Service
from tests.fault.conftest import Ordeal

TIMES = 2


@contextmanager
def second_relay(ordeal: Ordeal) -> Iterator[Service]:
    service = ordeal.path.service("second-relay", "relay", "run")
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ordeal", [3], indirect=True)
def test_a_paused_relay_that_was_overtaken_wakes_up_and_doubles_nothing(ordeal: Ordeal) -> None:
    with ordeal.load():
        for _ in range(TIMES):
            ordeal.wait_for_published()
            ordeal.path.relay.pause()
            with second_relay(ordeal) as second:
                ordeal.wait_for_published()
                ordeal.path.relay.resume()
                ordeal.wait_for_published()
                second.check()
            ordeal.path.relay.check()
    summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
    assert "relay.fenced" in ordeal.path.relay.log_path.read_text(), "the first relay never noticed: was it overtaken?"
