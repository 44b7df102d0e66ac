"""The same failure of the environment is reported ever less often, another one at once."""

from __future__ import annotations

import logging

import pytest

from inorder.model.errors import AuthenticationError, UnreachableError
from inorder.relay.events import SendCounts
from inorder.relay.options import Pace, StrategyOptions, wait_out


def test_the_same_failure_is_logged_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    options, counts = StrategyOptions(pace=Pace(back_off=0)), SendCounts()
    with caplog.at_level(logging.WARNING, "inorder.relay"):
        for attempt in range(100):
            wait_out(UnreachableError(f"Connection refused (after {attempt}ms in state CONNECT)"), counts, options)
        assert [record.repeated for record in caplog.records] == [0, 1, 2, 4, 8, 16, 32, 64]  # type: ignore[attr-defined]
        caplog.clear()
        wait_out(AuthenticationError("PostgreSQL: authentication failed"), counts, options)
        wait_out(UnreachableError("Connection refused (after 1ms in state CONNECT)"), counts, options)
        counts.last_error = ""  # it works again
        wait_out(UnreachableError("Connection refused (after 1ms in state CONNECT)"), counts, options)
    assert [record.repeated for record in caplog.records] == [0, 0, 0]  # type: ignore[attr-defined]
    assert counts.last_error
