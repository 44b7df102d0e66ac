"""Logs: JSON for collectors, a fixed event with fields, and never a payload."""

from __future__ import annotations

import io
import json
import logging
from typing import Any, Literal

import pytest
import structlog

from inorder.observe import configure_logs


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The JSON lines of a stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_stream_that_is_no_terminal_gets_json() -> None:
    stream = io.StringIO()
    configure_logs("info", "auto", stream)
    logging.getLogger("inorder.relay").info("batch_published", extra={"rows": 3})
    (line,) = lines(stream)
    assert (line["event"], line["rows"], line["level"]) == ("batch_published", 3, "info")
    assert line["logger"] == "inorder.relay"
    assert line["timestamp"].endswith("Z")


def test_structlog_loggers_come_out_the_same_way() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    structlog.get_logger("inorder.pipeline").warning("slice_replayed", partition=2)
    (line,) = lines(stream)
    assert (line["event"], line["partition"], line["logger"]) == ("slice_replayed", 2, "inorder.pipeline")


def test_the_console_is_for_people() -> None:
    stream = io.StringIO()
    configure_logs("info", "console", stream)
    logging.getLogger("inorder.relay").info("relay_started", extra={"group": "shop"})
    assert "relay_started" in stream.getvalue()
    assert "group=shop" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


@pytest.mark.parametrize(
    "fields",
    [{"value": "hunter2"}, {"payload": {"a": "hunter2"}}, {"headers": ["hunter2"]}, {"data": b"hunter2"}],
)
def test_no_payload_is_ever_logged(fields: dict[str, Any]) -> None:
    stream = io.StringIO()
    configure_logs("debug", "json", stream)
    structlog.get_logger("inorder").info("record_rejected", offset=7, **fields)
    logging.getLogger("inorder").info("record_rejected", extra={"offset": 7, **fields})
    assert "hunter2" not in stream.getvalue()
    assert [line["offset"] for line in lines(stream)] == [7, 7]


URL = "postgresql+psycopg://shop:hunter2@db/shop"


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_secret_of_an_error_or_of_its_cause(style: Literal["json", "console"]) -> None:
    stream = io.StringIO()
    configure_logs("info", style, stream)
    try:
        try:
            raise OSError(f"cannot connect to {URL}")
        except OSError as error:
            raise ValueError("password=hunter2 is refused") from error
    except ValueError:
        logging.getLogger("inorder.relay").exception("relay.worker_died")
        structlog.get_logger("inorder.relay").exception("relay.worker_died")
    assert "hunter2" not in stream.getvalue()
    for what in ("OSError: cannot connect to postgresql+psycopg://shop:***@db", "ValueError: password=*** is refused"):
        assert stream.getvalue().count(what) == 2


@pytest.mark.parametrize("field", [[URL], (URL,), {"url": URL}, {"password": "hunter2"}, [{"urls": [URL]}]])
def test_secrets_inside_a_field_are_masked_too(field: object) -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    logging.getLogger("inorder").info("event", extra={"found": field, "stale_keys": ["a", 7]})
    (line,) = lines(stream)
    assert "hunter2" not in stream.getvalue()
    assert line["stale_keys"] == ["a", 7]


def test_others_speak_only_when_something_is_wrong() -> None:
    stream = io.StringIO()
    configure_logs("debug", "json", stream)
    logging.getLogger("py4j").info("chatter")
    logging.getLogger("py4j").warning("trouble")
    logging.getLogger("inorder.relay").debug("batch_read")
    assert [line["event"] for line in lines(stream)] == ["trouble", "batch_read"]


def test_a_lower_level_is_not_shown() -> None:
    stream = io.StringIO()
    configure_logs("warning", "json", stream)
    structlog.get_logger("inorder").info("quiet")
    logging.getLogger("inorder").info("quiet")
    assert stream.getvalue() == ""


def test_setting_up_twice_writes_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logs("info", "json", first)
    configure_logs("info", "json", second)
    logging.getLogger("inorder").info("event")
    assert (first.getvalue(), len(lines(second))) == ("", 1)


def test_logs_go_to_what_stderr_is_at_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress line replaces it while it is shown; with the stream of before, both were in one line."""
    configure_logs("info", "json")
    replaced = io.StringIO()
    monkeypatch.setattr("sys.stderr", replaced)
    logging.getLogger("inorder.relay").info("batch_published")
    assert [line["event"] for line in lines(replaced)] == ["batch_published"]
