"""What the strategy `polling` decides, as functions of values, and what an owner remembers between rounds.

`step` decides how far the offset may move after a read, `settlement` what a round writes to the tables, `recover`
what a new owner concludes from the last marker.

`Gaps` and `Missing` remember ids that were not visible. An id is assigned at the INSERT and its row appears at the
commit. So an id that a read did not show belongs to a transaction that is open, or to one that was rolled back. Which
of the two follows from the transactions that were open **after** that read (`OutboxStore.holders`): once all of them
have ended, one more read is final. A database that cannot name them returns None. Such ids are never proven, and
`missing_max_retries` bounds how long they are waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice

from inorder.model.message import OutboxRow
from inorder.relay.marker import Marker, split
from inorder.relay.options import Policy
from inorder.relay.parking import Order, order_of
from inorder.relay.stores.ports import Key, MissingEvent, OutboxStore, Scan, Settlement

log = logging.getLogger("inorder.relay")

MOST_GAPS = 50_000
"""Ids that one round may record as missing. A wider gap is crossed only when it is proven to be empty."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far the offset may move after a read."""

    rows: Sequence[OutboxRow]
    to_offset: int
    gaps: Sequence[int] = ()
    """Ids in between that were not there."""
    large_gap_to: int | None = None
    """The last id of a large gap right above the offset; nothing can be taken before it is crossed."""


def step(offset: int, rows: Sequence[OutboxRow], *, most_gaps: int = MOST_GAPS) -> Step:
    """What to take of `rows`: all rows above the offset that one snapshot shows, up to the last of them."""
    if not rows:
        return Step((), offset)
    if rows[-1].id - offset == len(rows):
        return Step(rows, rows[-1].id)
    taken = _before_large_gap(offset, rows, most_gaps)
    if not taken:
        return Step((), offset, large_gap_to=rows[0].id - 1)
    present, top = {row.id for row in taken}, taken[-1].id
    return Step(taken, top, [id for id in range(offset + 1, top + 1) if id not in present])


def _before_large_gap(offset: int, rows: Sequence[OutboxRow], most_gaps: int) -> Sequence[OutboxRow]:
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
    delivered: dict[int, int] = field(default_factory=dict)
    """Ids that were published, with their proofs."""
    refused: set[int] = field(default_factory=set)
    exceeded: dict[int, str] = field(default_factory=dict)
    """Ids whose attempts are used up, with the reason."""
    waited: Collection[int] = ()
    """Ids that were not there for one more `missing_wait`."""


def settlement(work: Round, missing: Set[int], dead: Collection[int] = ()) -> Settlement:
    """What to write, given which ids are recorded as missing and which are proven dead.

    Every id that the offset passes is delivered, dead, or recorded.
    """
    gone = {*work.delivered, *dead}
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
    parts = (found.missed, found.failed, found.waited, found.delivered, found.exceeded)
    return found.to_offset != found.from_offset or any(parts)


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Of the rows that a marker names: which are in the table as they were published, and which ids have other rows."""

    ours: Set[int]
    replaced: Set[int] = frozenset()
    is_elsewhere: bool = False
    """Whether the database is another server than the marker's, so that its offset may be an older one."""


def recover(offset: int, marker: Marker, known: MarkedRows | None = None) -> Settlement | None:
    """What an earlier owner published and perhaps did not settle; None if its marker says nothing.

    The marker names all rows of its last round, and its floor is the offset at which this round began. The offset never
    decreases, so one below the floor was set back: by an operator or a backup, and what is above it is sent again; or
    with the rows, by a database that lost its last commits, and then what the marker proves is not.

    Ids that the round passed and that are not proven to be published are recorded as missing: rows that it held back,
    rows that got an id of the marker later, and ids that a transaction may still hold. Markers of version 1 prove
    nothing, and all of their ids count as published.
    """
    published = set(marker.ids()) if known is None else set(known.ours)
    replaced = frozenset[int]() if known is None else known.replaced
    went_back = known is not None and (known.is_elsewhere or bool(replaced))
    if not (published or replaced) or (offset < marker.floor and not went_back):
        return None
    to_offset = max([offset, *published])
    if offset < marker.floor and to_offset - offset > MOST_GAPS:
        return None
    passed = (id for id in range(offset + 1, to_offset + 1) if id not in published)
    missed = sorted({*passed, *(id for id in replaced if id <= to_offset)})
    return Settlement(offset, to_offset, missed=[MissingEvent(id) for id in missed], delivered=sorted(published))


class RecentRows:
    """The newest rows that were published, by their proofs: what is known of ids that are given out again.

    A table that keeps its published rows cannot be searched for rows that were not published. So when the sequence of
    the ids is found below the offset, or another row with the newest id, the ids that are given out again are looked up
    one by one.
    """

    def __init__(self) -> None:
        self._proofs: dict[int, int] = {}
        self._checked: int | None = None

    def remember(self, proofs: Mapping[int, int]) -> None:
        """Adds rows that were published."""
        for id in proofs:
            self._proofs.pop(id, None)
        self._proofs.update(proofs)
        for id in list(islice(self._proofs, max(0, len(self._proofs) - MOST_RECENT))):
            del self._proofs[id]

    def forget(self, ids: Iterable[int]) -> None:
        """Drops ids that other rows have now."""
        for id in ids:
            self._proofs.pop(id, None)

    def newest(self) -> list[int]:
        """The largest id, if there is any: a row that has got it since is enough to know that ids were given again."""
        return [max(self._proofs)] if self._proofs else []

    def all(self) -> list[int]:
        return sorted(self._proofs)

    def given_again(self, offset: int, last_id: int | None) -> list[int]:
        """Published ids up to the offset that the sequence, which was set back, has given out since the last call."""
        if last_id is None or (self._checked is None and last_id >= offset):
            return []
        since = self._checked or 0
        self._checked = last_id if last_id < offset else None
        return sorted(id for id in self._proofs if since < id <= min(last_id, offset))

    def replaced(self, rows: Sequence[OutboxRow]) -> list[int]:
        """The ids of these rows that are not the published ones."""
        return split(rows, self._proofs)[1]

    def unproven(self, ids: Iterable[int], rows: Sequence[OutboxRow]) -> list[int]:
        """Those of the ids whose rows are not the published ones: they are others, or not visible yet."""
        ours, _ = split(rows, self._proofs)
        return sorted(set(ids).difference(ours))


MOST_RECENT = 20_000


def ordered_by(*, keep_order: bool) -> Callable[[OutboxRow], Order]:
    """What a row must stay in order with: its key, or nothing."""
    return order_of if keep_order else _alone


def _alone(row: OutboxRow) -> Order:
    return (row.topic, row.id)


def waiting_keys(parked: Mapping[Key, tuple[int, ...]], policy: Callable[[str], Policy]) -> dict[Key, tuple[int, ...]]:
    """Of the keys that have an exceeded event, those that wait for it."""
    return {key: ids for key, ids in parked.items() if policy(key[0]) == "park"}


def chunks(ids: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    """Ascending ids in parts, the highest first.

    Parts are read one after the other. A row that a later part shows has a lower id than all of an earlier part, so
    every row that it could have seen is either shown too or follows it by id.
    """
    for end in range(len(ids), 0, -size):
        yield ids[max(0, end - size) : end]


Holders = frozenset[str] | None


class Gaps:
    """Invisible ids, by the transactions that may still commit them."""

    def __init__(self) -> None:
        self._by_holders: dict[Holders, set[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_holders.values()))

    def ids(self) -> list[int]:
        return sorted(id for ids in self._by_holders.values() for id in ids)

    def miss(self, ids: Collection[int], holders: Holders) -> None:
        """Records ids that a read did not show; `holders` were read after it."""
        if ids:
            self._by_holders.setdefault(holders, set()).update(ids)

    def forget(self, ids: Iterable[int]) -> None:
        """Drops ids that have appeared, are proven dead, or are no longer missing."""
        gone = frozenset(ids)
        if gone:
            self._regroup({holders: found - gone for holders, found in self._by_holders.items()}.items())

    def observe(self, holders: Holders) -> None:
        """Records which transactions may hold ids now; those not among them have ended."""
        if holders is not None:
            self._regroup((holders if was is None else was & holders, ids) for was, ids in self._by_holders.items())

    def ended(self) -> list[int]:
        """Ids whose holders have all ended: one more read decides."""
        return sorted(self._by_holders.get(frozenset(), ()))

    def unwatched(self) -> frozenset[int]:
        """Ids whose holders the database cannot name."""
        return frozenset(self._by_holders.get(None, ()))

    def _regroup(self, groups: Iterable[tuple[Holders, set[int]]]) -> None:
        found: dict[Holders, set[int]] = {}
        for holders, ids in groups:
            if ids:
                found.setdefault(holders, set()).update(ids)
        self._by_holders = found


class Missing:
    """The table of missing events as one owner remembers it.

    An id in it is either *unseen* (its row was not looked for yet), a *gap* (its row is not there, `Gaps`), or its row
    is there and waits, which `Parking` knows. The table is authoritative; all of this is found again by reading.
    """

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.gaps = Gaps()
        self._unseen: set[int] = set()
        self._refused: set[int] = set()
        self._retries: dict[int, int] = {}
        self._counted: frozenset[int] = frozenset()

    def load(self, events: Iterable[MissingEvent]) -> None:
        """Takes over the table as it is; operators may have inserted or deleted events."""
        found = {event.id: event for event in events}
        new, gone = found.keys() - self.ids, self.ids - found.keys()
        self.ids = set(found)
        self.forget(gone)
        self._unseen |= new
        self._refused.update(id for id in new if found[id].exception_thrown)
        self._retries.update({id: found[id].retry_count for id in new if found[id].retry_count})

    def look_at(self, ids: Iterable[int]) -> None:
        """Marks ids as unseen, because they may be free to be sent; those that are no longer missing are ignored."""
        self._unseen.update(id for id in ids if id in self.ids)

    def unseen(self, most: int) -> tuple[list[int], bool]:
        """The first ids to read, and whether they are all of them."""
        if not self._unseen:
            return [], True
        return sorted(self._unseen)[:most], len(self._unseen) <= most

    def record_read(self, ids: Collection[int], present: Collection[int], holders: Holders) -> None:
        """Records a read of `ids`, of which some were present; `holders` were read after it."""
        self._unseen.difference_update(ids)
        self.gaps.miss(set(ids).difference(present), holders)
        self.gaps.forget(present)

    def take_refused(self, id: int) -> bool:
        """Whether an earlier owner had the record refused; true once, because the caller holds it then."""
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
        """Gaps that cannot be proven and were already there at the previous call."""
        unwatched = self.gaps.unwatched()
        due, self._counted = sorted(unwatched & self._counted), unwatched
        return due

    def apply(self, found: Settlement) -> None:
        """Takes over what was written to the table."""
        self.ids.update(event.id for event in found.missed)
        gone = {*found.delivered, *(id for id, _ in found.exceeded)}
        self.ids -= gone
        self.forget(gone)

    def forget(self, ids: Collection[int]) -> None:
        """Drops ids that are no longer missing."""
        if ids:
            self._unseen.difference_update(ids)
            self._refused.difference_update(ids)
            self.gaps.forget(ids)
            for id in ids:
                self._retries.pop(id, None)


class LargeIdGap:
    """An empty range of ids right above the offset, too wide to record each id as missing.

    A new offset below an old table has one, a sequence that was set ahead, a table whose old rows were deleted. It is
    crossed as a whole once it is proven that no open transaction can commit a row in it; or, where the database cannot
    name transactions, after as long as a single missing id would have been waited for.
    """

    def __init__(self, primary: OutboxStore, *, patience_seconds: float, clock: Callable[[], float]) -> None:
        self._primary = primary
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._last: int | None = None
        self._holders = Gaps()
        self._met_at = 0.0

    def cross(self, offset: int, last: int) -> int | None:
        """The id up to which no row can appear any more; None while that is not proven."""
        if last != self._last:
            self._meet(last)
        else:
            self._holders.observe(self._primary.holders())
        if not self._holders.ended() and not self._is_out_of_patience():
            return None
        self._last = None
        # A row that has appeared in it meanwhile is the new edge.
        above = self._primary.read(Scan(above=offset), 1).rows
        edge = min(last, above[0].id - 1) if above else last
        log.info("relay.large_gap_crossed", extra={"from_offset": offset, "to_offset": edge})
        return edge

    def _meet(self, last: int) -> None:
        """Its last id represents all of it: a transaction that may commit one of them may commit that."""
        self._last, self._holders, self._met_at = last, Gaps(), self._clock()
        self._holders.miss([last], self._primary.holders())

    def _is_out_of_patience(self) -> bool:
        is_over = bool(self._holders.unwatched()) and self._clock() - self._met_at >= self._patience_seconds
        if is_over:
            log.warning("relay.large_gap_unproven", extra={"to_offset": self._last})
        return is_over
