"""Logs of the commands: one line an event, for people on a terminal and as JSON elsewhere.

The library itself only uses `logging.getLogger("inorder.…")` or structlog and never sets anything up, so a
program that embeds it keeps its own logging. An event is a fixed string, what varies stands in fields, and no
field ever carries a payload: whatever slips in is replaced by its size.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["auto", "console", "json"]

_PAYLOAD_FIELDS = frozenset({"value", "payload", "body", "headers"})


def configure_logs(level: str, style: Format, stream: TextIO | None = None) -> None:
    """Sends the logs of inorder and of what it uses to `stream` (stderr); a second call replaces it."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(_formatter(style == "json" or (style == "auto" and not target.isatty()), target.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Others speak only when something is wrong; ours speak as they are told.
    root.setLevel(logging.WARNING)
    logging.getLogger("inorder").setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(as_json: bool, colours: bool) -> logging.Formatter:
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=colours)]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.ExtraAdder()],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, without_payloads, *last],
    )


def without_payloads(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces what may be a payload by its size: fields with such a name, and any bytes."""
    for name, content in event.items():
        if isinstance(content, bytes | bytearray | memoryview):
            event[name] = f"<{len(content)} bytes>"
        elif name in _PAYLOAD_FIELDS and content is not None:
            event[name] = f"<{type(content).__name__}, {len(str(content))} characters>"
    return event
