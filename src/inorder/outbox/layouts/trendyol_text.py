"""Records as the trendyol layout keeps them: everything is text, and headers are one JSON object."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from inorder.model.message import Record

KEY_CHARACTERS = 200


def text(value: bytes | None) -> str | None:
    """The text of a key or value; `flaws` has seen that it is text."""
    return None if value is None else value.decode()


def header(record: Record) -> str | None:
    """The headers as a JSON object of texts; no headers are no text."""
    if not record.headers:
        return None
    return orjson.dumps({name: text(value) for name, value in record.headers}).decode()


def flaws(record: Record) -> Iterator[tuple[str, str]]:
    """What the columns cannot hold: the field, and why not."""
    if (reason := _not_text(record.key)) is not None:
        yield "key", reason
    elif len(text(record.key) or "") > KEY_CHARACTERS:
        yield "key", f"its column holds {KEY_CHARACTERS} characters, and this key has more."
    if record.value is None:
        yield "value", "its column holds no null, so there are no tombstones."
    elif (reason := _not_text(record.value)) is not None:
        yield "value", reason
    for name, value in record.headers:
        if value is None:
            yield "headers", f"{name!r} has no value, and its column is for texts."
        elif (reason := _not_text(value)) is not None:
            yield "headers", f"{name!r}: {reason}"
    names = [name for name, _ in record.headers]
    if len(set(names)) < len(names):
        yield "headers", "a name is there twice, and its column is a JSON object."


def _not_text(value: bytes | None) -> str | None:
    """Why a column for text cannot hold these bytes."""
    if value is None:
        return None
    if b"\x00" in value:
        return "its column holds text, which has no null characters."
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"its column holds text, and this is not UTF-8 ({error.reason} at byte {error.start})."
    return None
