"""Every log event has a fixed name and fields, and docs/logs.md lists exactly those of the source."""

from __future__ import annotations

import re

from inorder.cli.reference import log_calls
from tests.unit.docs.markdown import page, rows

_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)+")
_OF_LOGGING = {"name", "msg", "args", "message", "module", "filename", "process", "thread", "created", "asctime"}


def test_event_names_are_fixed_and_hold_no_values() -> None:
    wrong = [f"{call.place}: {call.event}" for call in log_calls() if not _NAME.fullmatch(call.event or "")]
    assert wrong == []


def test_no_field_has_a_name_that_logging_itself_uses() -> None:
    # logging raises KeyError for some of them, and a field `event` would replace the event's name.
    wrong = [call.place for call in log_calls() if (_OF_LOGGING | {"event", "level", "logger"}) & set(call.fields)]
    assert wrong == []


def test_the_page_lists_every_event_and_no_other() -> None:
    listed = [cells[0].strip("`") for cells in rows(page("docs/logs.md")) if cells[0].startswith("`")]
    assert sorted(listed) == sorted({call.event for call in log_calls() if call.event is not None})
