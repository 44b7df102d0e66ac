"""Moments as databases give them: with a zone, without one, or as text."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(stored: str | datetime) -> datetime:
    """In UTC where the database keeps no zone, and from text where it keeps no times."""
    found = datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def written_at(stored: object) -> datetime | None:
    """A moment that somebody else wrote, in SQLite perhaps as anything."""
    if not isinstance(stored, str | datetime):
        return None
    try:
        return moment(stored)
    except ValueError:
        return None
