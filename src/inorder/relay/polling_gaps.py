"""Ids that are not there: which transactions may still bring them, and when it is proven that none will.

An id is given out at the INSERT and its row appears at the commit. So an id that a read did not show belongs to a
transaction that is open, or to one that was rolled back. Which of the two is known from the transactions that were open
**after** that read (`OutboxStore.holders`): once all of them have ended, one more look is final.

A database that cannot name them gives None. Such ids are never proven, and somebody has to lose patience with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
