"""Which records of a slice are applied and which go to quarantine: decided journal by journal, from values alone.

| the journal, the record            | what follows                                                                |
|---|---|
| any, a purge                       | applied; what came before it is void, in quarantine too                     |
| parked, any other                  | quarantine, behind those that are there                                     |
| not parked, a damaged one          | quarantine; from here on the journal is parked                              |
| any, a mark                        | nothing                                                                     |

The answer does not depend on how the log is cut into slices: what is covered by a later delete of the same slice is
read all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from inorder.journal.action import Mark, Purge
from inorder.journal.replication.collapse import Acted
from inorder.journal.replication.quarantine import Quarantined
from inorder.journal.replication.replicate import Damaged, Place, Replicated, replicated
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Key
from inorder.ports.journal_log import LogRecord
from inorder.ports.journal_store import JournalHead

FOLLOWS = "It follows a record of its journal that is in quarantine."


@dataclass(slots=True)
class Run:
    """The records of one journal in a slice."""

    key: Key
    actions: list[Acted[LogRecord]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)

    def has_before(self, offset: int) -> bool:
        """Whether some record comes before an offset."""
        firsts = [each.offset for each in self.actions[:1]] + [each.offset for each in self.damaged[:1]]
        return any(first < offset for first in firsts)


@dataclass(frozen=True, slots=True)
class Sorted:
    """What becomes of a run."""

    applied: list[Acted[LogRecord]]
    replicated: Replicated | None
    parked: list[Quarantined]
    purged: int | None = None
    """The offset of a purge that has made void what is, or may yet come, in quarantine."""


def runs(journals: Iterable[tuple[Key, list[Acted[LogRecord]]]], damaged: Iterable[Damaged]) -> list[Run]:
    """The records by journal."""
    found = {key: Run(key, actions) for key, actions in journals}
    for one in damaged:
        found.setdefault(one.key, Run(one.key)).damaged.append(one)
    return list(found.values())


def sorted_out(place: Place, run: Run, head: JournalHead | None, *, is_parked: bool) -> Sorted:
    """Tells what can be applied from what must wait."""
    purged = max((each.offset for each in run.actions if isinstance(each.action, Purge)), default=-1)
    is_freed = purged >= 0
    voids = is_freed and (is_parked or run.has_before(purged))
    cut, reason = _first_damage(run, purged)
    if is_parked and not is_freed:
        cut, reason = -1, FOLLOWS
    while True:
        actions = [each for each in run.actions if purged <= each.offset and (cut is None or each.offset < cut)]
        try:
            done = replicated(place, run.key, head, actions) if actions else None
        except DamagedRecordError as error:
            cut, reason = error.offset, error.message
            continue
        applied = [each for each in actions if not isinstance(each.action, Mark)]
        return Sorted(
            applied, done, [] if cut is None else _waiting(place, run, cut, reason), purged if voids else None
        )


def cut_off(place: Place, key: Key, records: Sequence[Acted[LogRecord]], reason: str) -> list[Quarantined]:
    """Records that the store has refused, and those behind them."""
    reasons = [reason] + [FOLLOWS] * (len(records) - 1)
    return [
        Quarantined(key, place.partition, why, each.record)
        for each, why in zip(records, reasons, strict=True)
        if not isinstance(each.action, Mark)
    ]


def _first_damage(run: Run, purged: int) -> tuple[int | None, str]:
    first = next((each for each in run.damaged if each.offset > purged), None)
    return (None, "") if first is None else (first.offset, first.reason)


def _waiting(place: Place, run: Run, cut: int, reason: str) -> list[Quarantined]:
    reasons = {each.offset: each.reason for each in run.damaged} | ({cut: reason} if cut >= 0 else {})
    records = [each.record for each in run.actions if not isinstance(each.action, Mark)]
    records += [each.record for each in run.damaged]
    return [
        Quarantined(run.key, place.partition, reasons.get(record.offset, FOLLOWS), record)
        for record in sorted(records)
        if record.offset >= cut
    ]
