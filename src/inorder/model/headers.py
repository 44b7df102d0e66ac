"""Headers in one text column: JSON that people can read and that gives back the exact bytes.

    [["trace", "4bf92f35"], ["digest", {"base64": "/wA="}], ["flag", null]]

A value that is UTF-8 is kept as text, any other as base64, a missing one as null. Order and repeated names
stay as they were. No headers at all is no text at all (SQL NULL).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

import orjson

from inorder.model.errors import PermanentError
from inorder.model.message import RecordHeaders

_PARTS = 2
"""A name and a value."""


def to_text(headers: RecordHeaders) -> str | None:
    """The text that stores these headers, or None when there are none."""
    if not headers:
        return None
    return orjson.dumps([(name, _stored(value)) for name, value in headers]).decode()


def from_text(text: str | None) -> RecordHeaders:
    """The headers that `to_text` stored; damaged text raises `PermanentError` saying what is wrong."""
    if text is None:
        return ()
    try:
        items = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _damaged(text, f"not JSON ({error})") from error
    if not isinstance(items, list):
        raise _damaged(text, "not a list")
    headers: list[tuple[str, bytes | None]] = []
    for item in items:
        # Nearly every header is a name with text, and a relay reads a hundred thousand of them a second.
        if item.__class__ is list and len(item) == _PARTS and item[0].__class__ is item[1].__class__ is str:
            headers.append((item[0], item[1].encode()))
        else:
            headers.append(_header(text, len(headers), item))
    return tuple(headers)


def _stored(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _header(text: str, position: int, item: object) -> tuple[str, bytes | None]:
    match item:
        case [str(name), None]:
            return name, None
        case [str(name), {"base64": str(value), **rest}] if not rest:
            return name, _decoded(text, position, value)
    raise _damaged(text, f"item {position} is not a name with text, base64 or null")


def _decoded(text: str, position: int, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _damaged(text, f"item {position} is not base64 ({error})") from error


def _damaged(text: str, what: str) -> PermanentError:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return PermanentError(
        f"Stored headers are damaged: {what}: {shown!r}.",
        hint="Correct the row's headers column, or set it to NULL to send the record without headers.",
    )
