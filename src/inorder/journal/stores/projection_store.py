"""The tables of projections, `inorder_projection` and `inorder_projection_journal`, beside those of the read model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from inorder.database.database import Database, Dialect, InstallingDatabase, Transaction, statements_of
from inorder.journal.life import Life, is_named
from inorder.model.partitioning import Place


@dataclass(frozen=True, slots=True)
class ProjectionPoint:
    """How far one partition is: the authority, locked and moved in the transaction of the handler's writes."""

    next_offset: int
    """Everything below it is in the read model; during a scan, where the log is read from after it."""
    topic_id: str | None = None
    """The incarnation of the topic that the offsets belong to."""
    scan_id: str | None = None
    """While the store is scanned: its journals up to this id are done."""
    store_to: int | None = None
    """Up to this offset the store decides about journals that have no row: some were purged during the scan."""


@dataclass(frozen=True, slots=True)
class ProjectedJournal:
    """What a projection knows of a journal: by it the next record is judged."""

    life: Life | None
    """None if the store did not have the journal when it was read, up to `applied`."""
    stored_id: UUID | None = None
    """The name of the life, or the random id that Kafka Journal's replicator has chosen."""
    applied: int = -1
    """The offset up to which the journal's records are included; the log may be behind it after a scan."""


class ProjectionRow(NamedTuple):
    """A partition as people see it."""

    topic: str
    partition: int
    next_offset: int
    scan_id: str | None
    failures: int
    error: str | None


def projection_tables(dialect: Dialect) -> list[str]:
    return statements_of("inorder.journal", dialect, "projection.sql").starting_with("install")


class ProjectionStore:
    """The rows of one projection."""

    def __init__(self, database: Database, projection: str) -> None:
        self.database = InstallingDatabase(database, projection_tables(database.dialect))
        self._name = projection
        self._statements = statements_of("inorder.journal", database.dialect, "projection.sql")

    def read(self, place: Place) -> ProjectionPoint | None:
        rows = self.database.execute(self._statements["read"], self._at(place)).rows
        return ProjectionPoint(*rows[0]) if rows else None

    def begin(self, place: Place, next_offset: int, topic_id: str | None) -> ProjectionPoint:
        """The row of a partition, created at this offset if there is none."""
        values = self._at(place) | {"next_offset": next_offset, "topic_id": topic_id}
        self.database.execute(self._statements["insert"], values)
        return self.read(place) or ProjectionPoint(next_offset, topic_id)

    def lock(self, transaction: Transaction, place: Place) -> ProjectionPoint | None:
        """Waits for any other holder, then sees what it committed."""
        rows = transaction.execute(self._statements["lock"], self._at(place)).rows
        return ProjectionPoint(*rows[0]) if rows else None

    def move(self, transaction: Transaction, place: Place, point: ProjectionPoint) -> None:
        values = {
            "next_offset": point.next_offset,
            "topic_id": point.topic_id,
            "scan_id": point.scan_id,
            "store_to": point.store_to,
        }
        transaction.execute(self._statements["move"], self._at(place) | values)

    def fail(self, place: Place, failures: int, error: str) -> None:
        """Notes for people why a partition waits."""
        self.database.execute(self._statements["fail"], self._at(place) | {"failures": failures, "error": error})

    def rows(self) -> list[ProjectionRow]:
        found = self.database.execute(self._statements["read_all"], {"projection": self._name}).rows
        return [ProjectionRow(*row) for row in found]

    def reset(self) -> int:
        """Forgets everything; returns how many partitions there were."""
        named = {"projection": self._name}
        with self.database.transaction() as transaction:
            count = len(transaction.execute(self._statements["lock_all"], named).rows)
            transaction.execute(self._statements["reset_journals"], named)
            transaction.execute(self._statements["reset"], named)
        return count

    def journals(self, transaction: Transaction, place: Place, ids: Iterable[str]) -> dict[str, ProjectedJournal]:
        values = self._at(place) | {"ids": _json(sorted(set(ids)))}
        return {row[0]: _journal(row) for row in transaction.execute(self._statements["journals"], values).rows}

    def save(self, transaction: Transaction, place: Place, journals: Mapping[str, ProjectedJournal | None]) -> None:
        """Writes what is known of journals; None removes one."""
        rows = [_row(id, journal) for id, journal in journals.items() if journal is not None]
        gone = [id for id, journal in journals.items() if journal is None]
        if rows:
            transaction.execute(self._statements["save_journals"], self._at(place) | {"rows": _json(rows)})
        if gone:
            transaction.execute(self._statements["remove_journals"], self._at(place) | {"ids": _json(gone)})

    def forget_absent(self, transaction: Transaction, place: Place, next_offset: int) -> None:
        values = self._at(place) | {"next_offset": next_offset}
        transaction.execute(self._statements["forget_absent"], values)

    def ids_above(self, place: Place, id: str, most: int) -> list[str]:
        """The ids of journals that the projection knows, in their order."""
        values = self._at(place) | {"id": id, "most": most}
        return [row[0] for row in self.database.execute(self._statements["ids_above"], values).rows]

    def _at(self, place: Place) -> dict[str, Any]:
        return {"projection": self._name, "topic": place[0], "partition": place[1]}


def _json(value: Sequence[object]) -> str:
    return orjson.dumps(value).decode()


def _row(id: str, journal: ProjectedJournal) -> dict[str, object]:
    life = journal.life or Life(0, is_begun=False)
    return {
        "id": id,
        "seq_nr": life.seq_nr,
        "delete_to": life.delete_to,
        "is_begun": int(life.is_begun),
        "life": None if journal.stored_id is None else str(journal.stored_id),
        "applied": journal.applied,
    }


def _journal(row: Sequence[Any]) -> ProjectedJournal:
    _, seq_nr, delete_to, is_begun, life, applied = row
    stored_id = None if life is None else UUID(life)
    if not seq_nr:
        return ProjectedJournal(None, None, applied)
    named = stored_id if stored_id is not None and is_named(stored_id) else None
    return ProjectedJournal(Life(seq_nr, delete_to, bool(is_begun), named), stored_id, applied)
