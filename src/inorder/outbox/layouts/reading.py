"""Reading columns that anybody may have written: what is wrong is noted, never raised.

Each function takes the value as the driver gave it, the name of the column for the note, and the list of `flaws` found
so far. Text may come as bytes: SQLite keeps whatever it was given, so its layouts select bytes and the check is here.
"""

from __future__ import annotations

from typing import Any


def text(value: Any, column: str, flaws: list[str]) -> str | None:
    """Text or null; bytes that are no UTF-8 are a flaw, and shown with replacement characters."""
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        flaws.append(f"{column} is not UTF-8 text ({error.reason} at byte {error.start})")
        return bytes(value).decode(errors="replace")


def topic(value: Any, column: str, flaws: list[str]) -> str:
    """A topic; without one a row can go nowhere."""
    name = text(value, column, flaws)
    if not name:
        flaws.append(f"{column} is {'null' if name is None else 'empty'}")
    return name or ""


def text_bytes(value: Any, column: str, flaws: list[str]) -> bytes | None:
    """The UTF-8 bytes of a text column; bytes that are none are kept and noted, so that people can look at them."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    text(value, column, flaws)
    return bytes(value)
