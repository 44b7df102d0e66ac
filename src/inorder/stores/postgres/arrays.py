"""Lists as PostgreSQL writes arrays, a whole column at a time.

psycopg would ask each value for its type and dump it in Python, about a microsecond each. Here a column is one text
that C functions make, ten times as fast, and the server takes it as fast as the binary form.
"""

from __future__ import annotations

from collections.abc import Sequence


def numbers(column: Sequence[bool | int | float | None]) -> str:
    """Numbers and booleans."""
    return "{" + str(list(column))[1:-1].replace("None", "NULL") + "}"


def texts(column: Sequence[str | None]) -> str:
    """Texts without U+0000, which PostgreSQL has in no text; so it can mark here what is between texts, and a null."""
    if not column:
        return "{}"
    marked = ["\0" if text is None else text for text in column]
    joined = "\0,".join(marked).replace("\\", "\\\\").replace('"', '\\"').replace("\0,", '","')
    return f'{{"{joined}"}}'.replace('"\0"', "NULL")


def binaries(column: Sequence[bytes | None]) -> str:
    """Bytes, in hexadecimal digits."""
    return "{" + ",".join(["NULL" if data is None else f'"\\\\x{data.hex()}"' for data in column]) + "}"
