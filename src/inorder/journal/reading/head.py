"""What the log says about one journal beyond what is in the store, in a few numbers that the head cache can keep.

| there is            | append f..t @o                          | delete to                      | purge @o     |
|---|---|---|---|
| no append           | first append o, ends at t,              | delete_to is the larger one    | purged at o  |
|                     | delete_to at most f-1                   |                                |              |
| appends, end s      | ends at the larger of s and t           | the larger one, but at most s  | purged at o  |

A purge forgets what was before it and is itself remembered: **what the store holds is then of an earlier life**, until
the purge is replicated too. The original forgets the purge with the next append, and reads old events in place of new.

These numbers are made without knowing the store. That is exact as long as numbers rise. Where they do not (a fork), or
where a record cannot be read, `is_doubtful` says so, and the reader replays the log over the store's head instead.

Records are folded one by one, in offset order, whatever batches they come in. There is no second algebra that merges
batches, so none can disagree: the original's loses a purge that is followed by an append in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.model.journal import DeleteTo, SeqNr


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """The actions of one journal that may not be in the store; all defaults: there are none."""

    purged_at: int | None = None
    """The offset of the last purge."""
    append_offset: int | None = None
    """The first append since then."""
    first_seq_nr: SeqNr = 0
    """The first number of that append."""
    seq_nr: SeqNr = 0
    """The largest number appended since then."""
    delete_to: DeleteTo = 0
    is_doubtful: bool = False


EMPTY = HeadInfo()


def fold(head: HeadInfo, action: Action, offset: int) -> HeadInfo:
    """The head after one more action."""
    match action:
        case Append():
            return _append(head, action, offset)
        case Delete():
            to = action.to if head.append_offset is None else min(action.to, head.seq_nr)
            return replace(head, delete_to=max(head.delete_to, to))
        case Purge():
            return HeadInfo(purged_at=offset)
        case Mark():
            return head
    assert_never(action)


def doubt(head: HeadInfo) -> HeadInfo:
    """The head after a record that cannot be read."""
    return replace(head, is_doubtful=True)


def _append(head: HeadInfo, action: Append, offset: int) -> HeadInfo:
    first, last = action.range.first, action.range.last
    if head.append_offset is None:
        return replace(
            head, append_offset=offset, first_seq_nr=first, seq_nr=last, delete_to=min(head.delete_to, first - 1)
        )
    return replace(head, seq_nr=max(head.seq_nr, last), is_doubtful=head.is_doubtful or first <= head.seq_nr)
