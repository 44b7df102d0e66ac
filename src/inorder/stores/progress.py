"""What the pointer rows tell about a pipeline, in any database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from inorder import sql
from inorder.stores.database import Database, statements_of
from inorder.stores.moment import written_at

_STATEMENTS = sql.load("inorder.stores", "progress.sql")


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A pointer row; its counters moved with the commits that they count."""

    pipeline: str
    topic: str
    partition: int
    next_offset: int
    applied: int
    identical: int
    stale: int
    ignored: int
    rejected: int
    updated_at: datetime | None
    """When its last slice was applied, by the database's clock."""


def partition_progress(database: Database, pipeline: str) -> list[PartitionProgress]:
    """The partitions of a pipeline that have a pointer; none where nothing was installed yet."""
    if not database.execute(statements_of(database.dialect, "pointers.sql")["exists"]).rows:
        return []
    rows = database.execute(_STATEMENTS["progress"], {"pipeline": pipeline}).rows
    found = [PartitionProgress(*row) for row in rows]
    return [replace(one, updated_at=written_at(one.updated_at)) for one in found]
