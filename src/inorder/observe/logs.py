"""Logs of the commands: one line per event, for people on a terminal and as JSON elsewhere.

The library itself only uses `logging.getLogger("inorder.…")` and configures nothing, so a program that embeds it keeps
its own logging. An event is a fixed name, such as `relay.refused`; values are fields, passed in `extra=`, which become
JSON keys. docs/logs.md lists all of them. No field carries a payload: one that slips in is replaced by its size.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from inorder.model.secrets import mask_value

Format = Literal["auto", "console", "json"]

_PAYLOAD_FIELDS = frozenset({"value", "payload", "body", "headers"})


def configure_logs(level: str, style: Format, stream: TextIO | None = None) -> None:
    """Sends the logs of inorder and of its libraries to `stream` (stderr); a second call replaces the first."""
    target = stream or sys.stderr
    handler = _StderrHandler() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(_formatter(style == "json" or (style == "auto" and not target.isatty()), target.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries log warnings and errors only; inorder logs at the level of the settings.
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


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the moment: a progress line replaces it, and prints logs above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(as_json: bool, colours: bool) -> logging.Formatter:
    last: Processor = (
        structlog.processors.JSONRenderer(default=str) if as_json else structlog.dev.ConsoleRenderer(colors=colours)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            # A traceback is text before it is masked. The console's own ones would show local variables as well.
            structlog.processors.format_exc_info,
            without_payloads,
            last,
        ],
    )


def without_payloads(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces what may be a payload by its size: fields with such a name, and all bytes; masks secrets in texts."""
    for name, content in event.items():
        if isinstance(content, bytes | bytearray | memoryview):
            event[name] = f"<{len(content)} bytes>"
        elif name in _PAYLOAD_FIELDS and content is not None:
            event[name] = f"<{type(content).__name__}, {len(str(content))} characters>"
        elif isinstance(content, str | Mapping | list | tuple):
            event[name] = mask_value(content)
    return event
