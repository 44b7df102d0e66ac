"""Durations as the records of a journal spell them: `1 millisecond`, `100 minutes`, `30 days`.

It is the spelling of Scala's `FiniteDuration`. We write the largest unit that needs no fraction and read every
spelling that Scala reads, and plain numbers, which are milliseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Final

_MICROSECOND: Final = timedelta(microseconds=1)
# What a signed 64-bit number of nanoseconds holds: a JVM reads nothing longer.
LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)

_WRITTEN: Final = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", _MICROSECOND),
)
_NANOSECONDS: Final = {
    "d day days": 86_400_000_000_000,
    "h hr hrs hour hours": 3_600_000_000_000,
    "m min mins minute minutes": 60_000_000_000,
    "s sec secs second seconds": 1_000_000_000,
    "ms milli millis millisecond milliseconds": 1_000_000,
    "µs micro micros microsecond microseconds": 1_000,
    "ns nano nanos nanosecond nanoseconds": 1,
}
_UNITS: Final = {label: size for labels, size in _NANOSECONDS.items() for label in labels.split()}
_SPELLING: Final = re.compile(r"\s*(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>[a-zµ]+)\s*\Z")


def to_text(duration: timedelta) -> str:
    """The spelling of a duration.

    >>> to_text(timedelta(minutes=100)), to_text(timedelta(hours=24)), to_text(timedelta(milliseconds=1))
    ('100 minutes', '1 day', '1 millisecond')
    """
    unit, size = next((unit, size) for unit, size in _WRITTEN if not duration % size)
    count = duration // size
    return f"{count} {unit}" if abs(count) == 1 else f"{count} {unit}s"


def from_json(value: object) -> timedelta:
    """The duration of a JSON value; raises `ValueError` for anything that is none. Finer than microseconds is cut off.

    >>> from_json("1 min"), from_json("30 h") == timedelta(hours=30), from_json(60_000)
    (datetime.timedelta(seconds=60), True, datetime.timedelta(seconds=60))
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked(value * 1_000_000, value)
    spelling = _SPELLING.match(value) if isinstance(value, str) else None
    if spelling is None or spelling["unit"] not in _UNITS:
        raise ValueError(f"{value!r} is not a duration such as '30 days'")
    return _checked(int(Decimal(spelling["number"]) * _UNITS[spelling["unit"]]), value)


def _checked(nanoseconds: int, value: object) -> timedelta:
    if abs(nanoseconds) >= 2**63:
        raise ValueError(f"{value!r} is longer than {LONGEST.days} days")
    return timedelta(microseconds=nanoseconds // 1000)
