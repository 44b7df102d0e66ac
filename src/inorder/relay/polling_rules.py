"""What the strategy `polling` decides, as functions of values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from inorder.ports.exceeded_store import Key
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.polling_store import MissingEvent, Settlement
from inorder.relay.marker import Marker
from inorder.relay.parking import Order, Policy, order_of

MOST_GAPS = 50_000
"""Ids that one round may record as missing. A wider chasm is crossed only when it is proven to be empty."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far the offset may go after a read."""

    rows: Sequence[OutboxRow]
    to_offset: int
    gaps: Sequence[int] = ()
    """Ids in between that were not there."""
    chasm_to: int | None = None
    """The last id of a chasm right above the offset; nothing can be taken before it is crossed."""


def step(offset: int, rows: Sequence[OutboxRow], *, most_gaps: int = MOST_GAPS) -> Step:
    """What to take of the rows read above the offset, which are all that one snapshot shows up to the last of them."""
    if not rows:
        return Step((), offset)
    if rows[-1].id - offset == len(rows):
        return Step(rows, rows[-1].id)
    taken = _before_chasm(offset, rows, most_gaps)
    if not taken:
        return Step((), offset, chasm_to=rows[0].id - 1)
    present, top = {row.id for row in taken}, taken[-1].id
    return Step(taken, top, [id for id in range(offset + 1, top + 1) if id not in present])


def _before_chasm(offset: int, rows: Sequence[OutboxRow], most_gaps: int) -> Sequence[OutboxRow]:
    if rows[-1].id - offset - len(rows) <= most_gaps:
        return rows
    # Gaps below a row are its id, less the rows below it: they only grow, so there is one place to cut.
    place = next(place for place, row in enumerate(rows) if row.id - offset - 1 - place > most_gaps)
    return rows[:place]


@dataclass(slots=True)
class Round:
    """One round of work: what was taken, and what has become of it so far."""

    from_offset: int
    taken: Step
    delivered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    exceeded: dict[int, str] = field(default_factory=dict)
    """Ids whose attempts are used up, with the reason."""
    waited: Collection[int] = ()
    """Ids that nobody has brought for one more while."""


def settlement(work: Round, missing: Set[int], dead: Collection[int] = ()) -> Settlement:
    """What to write down, given which ids are recorded as missing and which are proven dead.

    Every id that the offset passes is delivered, dead, or recorded.
    """
    gone = work.delivered.union(dead)
    passed = sorted([*(row.id for row in work.taken.rows), *work.taken.gaps])
    missed = [id for id in passed if id not in gone and id not in missing]
    return Settlement(
        work.from_offset,
        work.taken.to_offset,
        missed=[MissingEvent(id, exception_thrown=id in work.refused) for id in missed],
        failed=sorted(work.refused & missing),
        waited=sorted(missing & set(work.waited)),
        delivered=sorted(gone & missing),
        exceeded=sorted(work.exceeded.items()),
    )


def writes(found: Settlement) -> bool:
    """Whether there is anything to write at all."""
    parts = (found.missed, found.failed, found.waited, found.delivered, found.exceeded)
    return found.to_offset != found.from_offset or any(parts)


def recovered(offset: int, marker: Marker) -> Settlement | None:
    """What an earlier owner published and perhaps did not settle; None where its marker is of no use.

    The marker names all ids of its last round, and its floor is the offset that this round began at. The offset never
    falls, so one below the floor was set back by a person or a backup, and what is above it is to be sent again.

    Ids that the round passed and did not publish are recorded as missing: those it held back are found again so.
    """
    published = set(marker.ids())
    if not published or offset < marker.floor:
        return None
    to_offset = max(offset, max(published))
    missed = [MissingEvent(id) for id in range(offset + 1, to_offset + 1) if id not in published]
    return Settlement(offset, to_offset, missed=missed, delivered=sorted(published))


def ordered_by(*, keep_order: bool) -> Callable[[OutboxRow], Order]:
    """What a row must stay in order with: its key, or nothing."""
    return order_of if keep_order else _alone


def _alone(row: OutboxRow) -> Order:
    return (row.topic, row.id)


def parks(parked: Mapping[Key, tuple[int, ...]], policy: Callable[[str], Policy]) -> dict[Key, tuple[int, ...]]:
    """Of the keys that have an exceeded event, those that wait for it."""
    return {key: ids for key, ids in parked.items() if policy(key[0]) == "park"}


def chunks(ids: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    """Ascending ids in parts, the highest first.

    Parts are read one after the other. A row that a later part shows has a lower id than all of an earlier part, so
    whatever it could have seen is either shown too or goes after it by its id.
    """
    for end in range(len(ids), 0, -size):
        yield ids[max(0, end - size) : end]
