"""The table of missing events as one owner remembers it: which ids are in it, and what is known of each.

An id in it is either *unseen* (nobody has looked whether its row is there), a *gap* (it is not there, `polling_gaps`),
or it is there and waits, which `parking.Parking` knows. The table decides; all of this is found again by looking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from inorder.ports.polling_store import MissingEvent, Settlement
from inorder.relay.polling_gaps import Gaps, Holders


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
