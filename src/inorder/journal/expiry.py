"""When a journal may go: what an append changes about it.

Days are those of UTC, whatever zone a host is set to, so that two replicators never disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from inorder.journal.codec import durations
from inorder.model.errors import ValidationError
from inorder.ports.journal_store import Expiry


@dataclass(frozen=True, slots=True)
class KeepExpiry:
    """Nothing to write."""


@dataclass(frozen=True, slots=True)
class SetExpiry:
    """Write this one."""

    expiry: Expiry


@dataclass(frozen=True, slots=True)
class RemoveExpiry:
    """Clear both columns."""


KEEP_EXPIRY: Final = KeepExpiry()

ExpiryChange: TypeAlias = KeepExpiry | SetExpiry | RemoveExpiry


def checked_expire_after(expire_after: timedelta | None) -> timedelta | None:
    """The duration, if a journal can live as long; else `ValidationError`."""
    if expire_after is not None and not timedelta(0) < expire_after <= durations.LONGEST:
        raise ValidationError(
            "expire_after", f"{expire_after} is not above 0 and at most {durations.LONGEST.days} days."
        )
    return expire_after


def expiry_at(timestamp: datetime, after: timedelta) -> Expiry:
    """The expiry of a journal whose last append is of that time.

    >>> expiry_at(datetime(2019, 12, 11, 10, 10, 10, tzinfo=UTC), timedelta(days=1)).on
    datetime.date(2019, 12, 12)
    """
    return Expiry(after, (timestamp.astimezone(UTC) + after).date())


def expiry_change(current: Expiry | None, after: timedelta | None, timestamp: datetime) -> ExpiryChange:
    """What an append with this `expire_after` changes."""
    if after is None:
        return KEEP_EXPIRY if current is None else RemoveExpiry()
    expiry = expiry_at(timestamp, after)
    return KEEP_EXPIRY if expiry == current else SetExpiry(expiry)


def changed_expiry(current: Expiry | None, change: ExpiryChange) -> Expiry | None:
    """The expiry once the change is made."""
    match change:
        case KeepExpiry():
            return current
        case SetExpiry(expiry):
            return expiry
        case RemoveExpiry():
            return None
