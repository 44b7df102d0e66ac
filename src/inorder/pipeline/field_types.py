"""The types of fields: which JSON values they take, and what a table is given for them.

Each type has one rule, `convert`: it returns what is to be stored, or raises `Refused`. What JSON has no type for is
text in one canonical form, so that equal values have equal texts. `is_plain` is a short cut past the rule: it is asked
for whole columns, and true only where `convert` would return every value as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson

from inorder.ports.table_store import Value

_SHOWN = 80
_DECIMAL = re.compile(r"(?P<sign>-?)0*(?P<whole>[0-9]+?)(?:\.(?P<fraction>[0-9]+?)0*)?\Z")
_WHOLE_DIGITS, _FRACTION_DIGITS = 35, 30
"""What DECIMAL of MySQL can hold; a wider number would be rounded there without a word."""
_NUMERIC_CHARACTERS = 350
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of U+0000 in a JSON text, and not a backslash followed by u0000."""


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A value that its field does not take."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


Convert: TypeAlias = Callable[[Any], Value]
IsPlain: TypeAlias = Callable[[set[type], Sequence[Any]], bool]


def _never_plain(_types: set[type], _present: Sequence[Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type by its rule, and perhaps a short cut."""

    convert: Convert
    is_plain: IsPlain = _never_plain
    """Of the types in a column and its values, nulls left out."""


def shortened(value: object) -> str:
    """A value as it may stand in a log line or a dead letter's detail."""
    text = repr(value[:_SHOWN]) if isinstance(value, bytes | str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def json_type(value: object) -> str:
    """What JSON calls it."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _wrong_type(value: object, kind: str) -> Refused:
    return Refused("wrong-type", f"is a JSON {json_type(value)}, not {kind}: {shortened(value)}")


def _boolean() -> FieldType:
    def convert(value: Any) -> Value:
        if value is True or value is False:
            return value
        raise _wrong_type(value, "boolean")

    return FieldType(convert, lambda types, _: types <= {bool})


def _whole(kind: str, bits: int) -> FieldType:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> Value:
        if type(value) is int and low <= value <= high:
            return value
        # orjson reads whole numbers beyond 64 bits as floats
        if type(value) is int or (type(value) is float and abs(value) > high):
            raise Refused("out-of-range", f"is {value}, outside {kind}")
        raise _wrong_type(value, kind)

    def is_plain(types: set[type], present: Sequence[Any]) -> bool:
        return not types or (types == {int} and low <= min(present) and max(present) <= high)

    return FieldType(convert, is_plain)


def _double() -> FieldType:
    def convert(value: Any) -> Value:
        if type(value) in (float, int):
            return float(value)
        raise _wrong_type(value, "double")

    return FieldType(convert, lambda types, _: types <= {float})


def _text() -> FieldType:
    def convert(value: Any) -> Value:
        if type(value) is not str:
            raise _wrong_type(value, "text")
        if "\0" in value:
            raise Refused("nul-character", "holds the character U+0000, which tables cannot store")
        return value

    return FieldType(convert, lambda types, present: types <= {str} and "\0" not in "".join(present))


def _numeric(value: Any) -> Value:
    if type(value) not in (str, int, float):
        raise _wrong_type(value, "numeric")
    digits = value if type(value) is str else format(Decimal(repr(value)), "f")
    found = _DECIMAL.match(digits) if len(digits) <= _NUMERIC_CHARACTERS else None
    if found is None:
        raise Refused("wrong-type", f"is no decimal number that numeric takes: {shortened(value)}")
    whole, fraction = found["whole"], found["fraction"] or ""
    if len(whole) > _WHOLE_DIGITS or len(fraction) > _FRACTION_DIGITS:
        limits = f"{_WHOLE_DIGITS} digits before the point and {_FRACTION_DIGITS} after it"
        raise Refused("out-of-range", f"is {shortened(value)}, and numeric takes {limits} at most")
    number = f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction else whole
    return f"{found['sign']}{number}" if number.strip("0.") else "0"


def _timestamp(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "timestamp")
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise Refused("wrong-type", f"is a time without its zone, as in 2026-01-31T12:00:00Z: {shortened(value)}")
        return moment.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    except (ValueError, OverflowError) as error:
        raise Refused("wrong-type", f"is no time as RFC 3339 writes it: {shortened(value)}") from error


def _date(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "date")
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError as error:
        raise Refused("wrong-type", f"is no date, as in 2026-01-31: {shortened(value)}") from error


def _uuid(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "uuid")
    try:
        return str(UUID(value))
    except ValueError as error:
        raise Refused("wrong-type", f"is no uuid: {shortened(value)}") from error


def _json(value: Any) -> Value:
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise Refused("wrong-type", f"is JSON nested too deeply to be stored: {shortened(value)}") from error
    if _NUL.search(text):
        raise Refused("nul-character", "holds the character U+0000, which tables cannot store")
    return text


FIELD_TYPES: Final[dict[str, FieldType]] = {
    "boolean": _boolean(),
    "integer": _whole("integer", 32),
    "bigint": _whole("bigint", 64),
    "double": _double(),
    "numeric": FieldType(_numeric),
    "text": _text(),
    "timestamp": FieldType(_timestamp),
    "date": FieldType(_date),
    "uuid": FieldType(_uuid),
    "json": FieldType(_json),
}
KEY_TYPES: Final = ("bigint", "integer", "text", "uuid")
