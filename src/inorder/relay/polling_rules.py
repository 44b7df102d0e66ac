"""What the strategy `polling` decides, as functions of values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from inorder.model.outbox_row import OutboxRow
from inorder.relay.marker import Marker
from inorder.relay.parking import Order, Policy, order_of
from inorder.relay.stores.ports import Key, MissingEvent, OutboxStore, Scan, Settlement

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


# Ids that are not there: which transactions may still bring them, and when it is proven that none will.
#
# An id is given out at the INSERT and its row appears at the commit. So an id that a read did not show belongs to a
# transaction that is open, or to one that was rolled back. Which of the two is known from the transactions that were
# open **after** that read (`OutboxStore.holders`): once all of them have ended, one more look is final.
#
# A database that cannot name them gives None. Such ids are never proven, and somebody has to lose patience with them.

Holders = frozenset[str] | None


class Gaps:
    """Invisible ids, by the transactions that may still bring them."""

    def __init__(self) -> None:
        self._by_holders: dict[Holders, set[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_holders.values()))

    def ids(self) -> list[int]:
        """All of them, by id."""
        return sorted(id for ids in self._by_holders.values() for id in ids)

    def miss(self, ids: Collection[int], holders: Holders) -> None:
        """These were not there in a read, and the holders were asked for after it."""
        if ids:
            self._by_holders.setdefault(holders, set()).update(ids)

    def forget(self, ids: Iterable[int]) -> None:
        """These have appeared, or are proven dead, or are no business of ours any more."""
        gone = frozenset(ids)
        if gone:
            self._regroup({holders: found - gone for holders, found in self._by_holders.items()}.items())

    def observe(self, holders: Holders) -> None:
        """Which transactions may hold ids now; whoever is not among them has ended."""
        if holders is not None:
            self._regroup((holders if was is None else was & holders, ids) for was, ids in self._by_holders.items())

    def ended(self) -> list[int]:
        """Ids whose holders have all ended: one more look decides."""
        return sorted(self._by_holders.get(frozenset(), ()))

    def unwatched(self) -> frozenset[int]:
        """Ids of which the database cannot tell who may bring them."""
        return frozenset(self._by_holders.get(None, ()))

    def _regroup(self, groups: Iterable[tuple[Holders, set[int]]]) -> None:
        found: dict[Holders, set[int]] = {}
        for holders, ids in groups:
            if ids:
                found.setdefault(holders, set()).update(ids)
        self._by_holders = found


# The table of missing events as one owner remembers it: which ids are in it, and what is known of each.
#
# An id in it is either *unseen* (nobody has looked whether its row is there), a *gap* (it is not there,
# `polling_gaps`), or it is there and waits, which `parking.Parking` knows. The table decides; all of this is found
# again by looking.


class Missing:
    """What an owner knows of the missing events."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.gaps = Gaps()
        self._unseen: set[int] = set()
        self._refused: set[int] = set()
        self._retries: dict[int, int] = {}
        self._counted: frozenset[int] = frozenset()

    def load(self, events: Iterable[MissingEvent]) -> None:
        """The table as it is; somebody may have put events into it, or taken some out."""
        found = {event.id: event for event in events}
        new, gone = found.keys() - self.ids, self.ids - found.keys()
        self.ids = set(found)
        self.forget(gone)
        self._unseen |= new
        self._refused.update(id for id in new if found[id].exception_thrown)
        self._retries.update({id: found[id].retry_count for id in new if found[id].retry_count})

    def look_at(self, ids: Iterable[int]) -> None:
        """These may be there and free to go; those that are no longer missing are none of ours."""
        self._unseen.update(id for id in ids if id in self.ids)

    def unseen(self, most: int) -> tuple[list[int], bool]:
        """The first ids to be looked at, and whether they are all of them."""
        if not self._unseen:
            return [], True
        return sorted(self._unseen)[:most], len(self._unseen) <= most

    def saw(self, asked: Collection[int], present: Collection[int], holders: Holders) -> None:
        """Of the ids asked for these were there; the holders were asked for afterwards."""
        self._unseen.difference_update(asked)
        self.gaps.miss(set(asked).difference(present), holders)
        self.gaps.forget(present)

    def was_refused(self, id: int) -> bool:
        """Whether an earlier owner had a record refused; true once, since whoever asks holds it then."""
        if id not in self._refused:
            return False
        self._refused.discard(id)
        return True

    def retries(self, id: int) -> int:
        """The retry count of an event after one more attempt; the first one, which makes it missing, is no retry."""
        if id in self.ids:
            self._retries[id] = self._retries.get(id, 0) + 1
        return self._retries.get(id, 0)

    def out_of_patience(self) -> list[int]:
        """Gaps that nobody can prove, and that were there already when this was last asked."""
        unwatched = self.gaps.unwatched()
        due, self._counted = sorted(unwatched & self._counted), unwatched
        return due

    def settled(self, found: Settlement) -> None:
        """What was written to the table."""
        self.ids.update(event.id for event in found.missed)
        gone = {*found.delivered, *(id for id, _ in found.exceeded)}
        self.ids -= gone
        self.forget(gone)

    def forget(self, ids: Collection[int]) -> None:
        """These are not missing any more."""
        if ids:
            self._unseen.difference_update(ids)
            self._refused.difference_update(ids)
            self.gaps.forget(ids)
            for id in ids:
                self._retries.pop(id, None)


# A stretch of ids above the offset in which nothing is, too wide to record each of them as missing.
#
# A new offset below an old table has one, a sequence that was set ahead, a table whose old rows were deleted. It is
# crossed as a whole once it is proven that no open transaction can bring a row of it, or where the database cannot
# tell, after as long as a single missing id would have been waited for.

log = logging.getLogger("inorder.relay")


class LargeIdGap:
    """The chasm that one owner stands before, if there is one."""

    def __init__(self, primary: OutboxStore, *, patience_seconds: float, clock: Callable[[], float]) -> None:
        self._primary = primary
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._last: int | None = None
        self._watch = Gaps()
        self._met_at = 0.0

    def crossed(self, offset: int, last: int) -> int | None:
        """The id up to which there is nothing for ever; None while that is not proven."""
        if last != self._last:
            self._meet(last)
        else:
            self._watch.observe(self._primary.holders())
        if not self._watch.ended() and not self._is_out_of_patience():
            return None
        self._last = None
        # What has appeared in it meanwhile is the new edge.
        above = self._primary.read(Scan(above=offset), 1).rows
        edge = min(last, above[0].id - 1) if above else last
        log.info("relay.chasm_crossed", extra={"from_offset": offset, "to_offset": edge})
        return edge

    def _meet(self, last: int) -> None:
        """Its last id stands for all of it: whoever may bring one of them may bring that."""
        self._last, self._watch, self._met_at = last, Gaps(), self._clock()
        self._watch.miss([last], self._primary.holders())

    def _is_out_of_patience(self) -> bool:
        is_over = bool(self._watch.unwatched()) and self._clock() - self._met_at >= self._patience_seconds
        if is_over:
            log.warning("relay.chasm_unproven: nobody can tell whether a transaction holds ids of it.")
        return is_over
