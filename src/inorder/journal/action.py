"""What a record of a journal's topic asks for; the events of an append are in the record's value.

| action | meaning |
|---|---|
| `Append` | these events, all or none of them |
| `Delete` | all events up to a number go; events to come are not touched |
| `Purge` | the whole journal goes, and the next append begins a new one |
| `Mark` | nothing; its offset tells a reader how far to read |

An action may have a **condition**, which is part of its record: it counts only if the journal is as its writer saw it,
and is void otherwise. Whether it holds is decided by the order of the log alone (`life.py`), so everyone who reads the
record agrees. Records of Kafka Journal, and of inorder before conditions, have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID

from inorder.journal.stores.ports import Expiry
from inorder.model.errors import ValidationError
from inorder.model.journal import DeleteTo, PartitionOffset, PayloadType, SeqNr, SeqRange

NOT_BEGUN: Final = UUID(int=0)
"""Names the life of a journal that has no event yet, in a condition."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How a journal must be for an action to count; None does not matter.

    Life and number together name one state: within a life numbers rise, so one append only can have led to a number.
    """

    life: UUID | None = None
    """The life that is meant (`life.life_id`), or `NOT_BEGUN`."""
    seq_nr: SeqNr | None = None
    """Where the journal ends, 0 if there is none."""
    seen: PartitionOffset | None = None
    """The mark at which the writer saw that life."""


@dataclass(frozen=True, slots=True)
class Append:
    """Events with the numbers from the first to the last of `range`, perhaps with gaps."""

    range: SeqRange
    payload_type: PayloadType
    origin: str | None = None
    version: str | None = None
    metadata: object = None
    id: str | None = None
    """Names this append, the same when it is repeated; an append with an id counts as a whole or not at all."""
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes all events up to `to`, but none that are appended later."""

    to: DeleteTo
    origin: str | None = None
    version: str | None = None
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """Removes the whole journal; the next append begins a new one."""

    origin: str | None = None
    version: str | None = None
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Changes nothing; its offset tells a reader how far to read."""

    id: str
    origin: str | None = None
    version: str | None = None


Action: TypeAlias = Append | Delete | Purge | Mark


@dataclass(frozen=True, slots=True)
class KeepExpiry:
    """Leaves both columns as they are."""


@dataclass(frozen=True, slots=True)
class SetExpiry:
    expiry: Expiry


@dataclass(frozen=True, slots=True)
class RemoveExpiry:
    """Clears both columns."""


KEEP_EXPIRY: Final = KeepExpiry()

ExpiryChange: TypeAlias = KeepExpiry | SetExpiry | RemoveExpiry


def check_expire_after(expire_after: timedelta | None) -> timedelta | None:
    """Returns the duration; raises `ValidationError` if no journal can live that long."""
    if expire_after is not None and not timedelta(0) < expire_after <= LONGEST:
        raise ValidationError("expire_after", f"{expire_after} is not above 0 and at most {LONGEST.days} days.")
    return expire_after


def expiry_at(timestamp: datetime, after: timedelta) -> Expiry:
    """The expiry of a journal whose last append is of that time; days are in UTC, so that replicators agree on them.

    >>> expiry_at(datetime(2019, 12, 11, 10, 10, 10, tzinfo=UTC), timedelta(days=1)).on
    datetime.date(2019, 12, 12)
    """
    return Expiry(after, (timestamp.astimezone(UTC) + after).date())


def decide_expiry_change(current: Expiry | None, after: timedelta | None, timestamp: datetime) -> ExpiryChange:
    """What an append with this `expire_after` changes."""
    if after is None:
        return KEEP_EXPIRY if current is None else RemoveExpiry()
    expiry = expiry_at(timestamp, after)
    return KEEP_EXPIRY if expiry == current else SetExpiry(expiry)


def apply_expiry_change(current: Expiry | None, change: ExpiryChange) -> Expiry | None:
    match change:
        case KeepExpiry():
            return current
        case SetExpiry(expiry):
            return expiry
        case RemoveExpiry():
            return None


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
_MOST_CHARACTERS: Final = 64
"""Of a duration: nineteen digits, a fraction and a unit need fewer, and a million digits take minutes to multiply."""
_SPELLING: Final = re.compile(r"\s*(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>[a-zµ]+)\s*\Z")


def format_duration(duration: timedelta) -> str:
    """A duration as records spell it, which is the spelling of Scala's `FiniteDuration`: the largest whole unit.

    >>> format_duration(timedelta(minutes=100)), format_duration(timedelta(hours=24))
    ('100 minutes', '1 day')
    """
    unit, size = next((unit, size) for unit, size in _WRITTEN if not duration % size)
    count = duration // size
    return f"{count} {unit}" if abs(count) == 1 else f"{count} {unit}s"


def parse_duration(value: object) -> timedelta:
    """Parses every spelling that Scala reads, and plain numbers, which are milliseconds; truncates to microseconds.

    Raises `ValueError` for anything else.

    >>> parse_duration("1 min"), parse_duration("30 h") == timedelta(hours=30), parse_duration(60_000)
    (datetime.timedelta(seconds=60), True, datetime.timedelta(seconds=60))
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _to_timedelta(value * 1_000_000, value)
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        raise ValueError(f"{value[:_MOST_CHARACTERS]!r} and {len(value) - _MOST_CHARACTERS:,} characters more")
    spelling = _SPELLING.match(value) if isinstance(value, str) else None
    if spelling is None or spelling["unit"] not in _UNITS:
        raise ValueError(f"{value!r} is not a duration such as '30 days'")
    return _to_timedelta(int(Decimal(spelling["number"]) * _UNITS[spelling["unit"]]), value)


def _to_timedelta(nanoseconds: int, value: object) -> timedelta:
    if abs(nanoseconds) >= 2**63:
        raise ValueError(f"{value!r} is longer than {LONGEST.days} days")
    return timedelta(microseconds=nanoseconds // 1000)
