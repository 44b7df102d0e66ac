"""A relay that was frozen and replaced resumes and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inorder.embedded.stack import Service
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


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ordeal", [3], indirect=True)
def test_a_paused_relay_that_was_overtaken_wakes_up_and_doubles_nothing(ordeal: Ordeal) -> None:
    with ordeal.load():
        for _ in range(TIMES):
            ordeal.wait_for_published()
            ordeal.path.relay.pause()
            with second_relay(ordeal) as second:
                ordeal.wait_for_published()
                assert "relay.taken_over" in second.log_path.read_text(), "who published? The first relay is paused"
                ordeal.path.relay.resume()
                ordeal.wait_for_published()
                second.check()
            ordeal.path.relay.check()
    summary = ordeal.verdict()
    assert summary.holds, summary.verdict
    assert summary.committed == summary.published > 0
    # The broker's fence stops it, or the lease does before it publishes: either way its old term is over.
    terms = ordeal.path.relay.log_path.read_text().count("relay.taken_over")
    assert terms >= TIMES, "the first relay never noticed: was it overtaken?"
