"""What a record of a journal's topic asks for; the events of an append are in the record's value.

| action | meaning |
|---|---|
| `Append` | these events, all or none of them |
| `Delete` | all events up to a number go; events to come are not touched |
| `Purge` | the whole journal goes, and the next append begins a new one |
| `Mark` | nothing; its offset tells a reader how far to read |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from inorder.model.journal import DeleteTo, PayloadType, SeqRange


@dataclass(frozen=True, slots=True)
class Append:
    """Events with the numbers from the first to the last of `range`, perhaps with gaps."""

    range: SeqRange
    payload_type: PayloadType
    origin: str | None = None
    version: str | None = None
    metadata: object = None


@dataclass(frozen=True, slots=True)
class Delete:
    """All events up to `to` go."""

    to: DeleteTo
    origin: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """The journal goes."""

    origin: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing changes."""

    id: str
    origin: str | None = None
    version: str | None = None


Action: TypeAlias = Append | Delete | Purge | Mark
