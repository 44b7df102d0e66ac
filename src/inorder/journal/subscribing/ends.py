"""Where journals end, as somebody knows who reads a topic from some offset on and remembers only so many of them.

What was seen of a journal gives a lower bound of its end; it is *exact* after a purge, or once the store was asked
where the journal ended before. The one that was not heard of for longest is forgotten, and the offset up to which
something may be forgotten is remembered: if the store has passed it, nothing is lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from inorder.journal.action import Action, Append, Purge
from inorder.model.journal import SeqNr

MAX_JOURNALS: Final = 100_000


class End(NamedTuple):
    """The largest number that was seen of a journal's life, 0 if none was."""

    seq_nr: SeqNr = 0
    is_exact: bool = False


UNKNOWN: Final = End()
NONE: Final = End(0, is_exact=True)


def after(end: End, action: Action | None) -> End:
    """The end after a record's action, None for a record that is none of ours."""
    match action:
        case Purge():
            return NONE
        case Append():
            return end._replace(seq_nr=max(end.seq_nr, action.range.last))
    return end


class Ends:
    """The ends of the journals of one topic."""

    def __init__(self, max_journals: int = MAX_JOURNALS) -> None:
        self._max = max_journals
        self._known: OrderedDict[tuple[int, bytes], tuple[End, int]] = OrderedDict()
        self._forgotten: dict[int, int] = {}

    def of(self, partition: int, id: bytes) -> End:
        """What is known of a journal's end."""
        found = self._known.get((partition, id))
        return UNKNOWN if found is None else found[0]

    def set(self, partition: int, id: bytes, end: End, offset: int) -> None:
        """Remembers an end as it is after the record at an offset."""
        self._known[partition, id] = end, offset
        self._known.move_to_end((partition, id))
        if len(self._known) > self._max:
            (over, _), (_, last) = self._known.popitem(last=False)
            self._forgotten[over] = max(last, self._forgotten.get(over, -1))

    def forgotten(self, partition: int) -> int:
        """The offset above which no record is forgotten."""
        return self._forgotten.get(partition, -1)
