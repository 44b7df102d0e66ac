"""What operators have paused: topics, keys and shards that the relay does not send, and tables that the pipeline does
not fill.

**What is authoritative.** The row of (kind, name) in `inorder_pause`, in the database of the outbox. Relays read it
with their routes, so at most half a second old, and the job `upsert` with the generations of its topics, twice a
second.

A pause loses and reorders nothing, because it uses what is there for topics that cannot be written and for generations
that may not be read yet: rows of a paused topic wait in the outbox, in order, while other topics continue
(`relay/parking.py`), and the records of a paused table wait in Kafka behind its pointer. A paused key is held as a
refused record holds its key, without a refusal: its rows wait, and other keys of its topic continue. The owner of a
paused shard stays its owner and reads nothing. A pause is no fence. A batch that is under way is finished, and a
process that was frozen before the pause may finish one after it.

| what happens                        | then                                                                        |
|---|---|
| the relay or the job starts, paused | it reads the pause before it sends or applies anything                      |
| the database does not answer        | relays send nothing, as they cannot read routes either; a running job       |
|                                     | continues as before until it is read again                                  |
| paused twice                        | the later reason counts; one `resume` ends it                               |
| the table of pauses is missing      | nothing is paused; `inorder pause` and `schema install` create it           |
| a shard is taken over while paused  | the new owner reads the pause before its first batch                        |
| `reshard`, while a shard is paused  | the pause is that of the shard with this number, whatever keys it has then  |
| a direct publisher                  | knows no pauses: it has no place where messages could wait                  |
| retention, while a table is paused  | removes what waits in Kafka as ever: the job then refuses to skip it        |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inorder.database.database import Database, InstallingDatabase, statements_of
from inorder.topics.stores.generations import generation_tables

_SPLIT_SECOND: Final = re.compile(r"\.\d+")


class PauseKind(StrEnum):
    """What can be paused."""

    TOPIC = "topic"
    """The relay sends no message of it."""
    KEY = "key"
    """The relay sends no message of it; its name is `TOPIC/KEY`."""
    SHARD = "shard"
    """Its owner reads no row; its name is its number."""
    TABLE = "table"
    """The job `upsert` applies no record to it."""
    PIPELINE = "pipeline"
    """A job: all its tables."""


RELAY_KINDS: Final = (PauseKind.TOPIC, PauseKind.KEY, PauseKind.SHARD)
"""What the relay honours; the others are the pipeline's."""


@dataclass(frozen=True, slots=True)
class Pause:
    """One row: what is paused, why, by whom and since when."""

    kind: PauseKind
    name: str
    reason: str
    paused_by: str
    paused_at: str

    def __str__(self) -> str:
        # To the second: the database's text may have digits below that, before a time zone or at its end.
        return f"{self.reason} ({self.paused_by}, {_SPLIT_SECOND.sub('', self.paused_at)})"


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that is paused at one moment."""

    rows: tuple[Pause, ...] = ()

    @property
    def topics(self) -> dict[str, str]:
        """The topics that are paused, each with the reason."""
        return {row.name: str(row) for row in self.rows if row.kind is PauseKind.TOPIC}

    @property
    def keys(self) -> dict[tuple[str, bytes], str]:
        """The keys that are paused, by topic and key, each with the reason; a topic's name has no slash."""
        found = ((row.name.partition("/"), row) for row in self.rows if row.kind is PauseKind.KEY)
        return {(topic, key.encode()): str(row) for (topic, _, key), row in found}

    @property
    def shards(self) -> dict[str, str]:
        """The shards that are paused, by number, each with the reason."""
        return {row.name: str(row) for row in self.rows if row.kind is PauseKind.SHARD}

    def of_table(self, job: str, table: str) -> Pause | None:
        """The pause of a table, or of the whole job that fills it."""
        return self._find((PauseKind.TABLE, table)) or self._find((PauseKind.PIPELINE, job))

    def _find(self, wanted: tuple[PauseKind, str]) -> Pause | None:
        return next((row for row in self.rows if (row.kind, row.name) == wanted), None)


NO_PAUSES: Final = Pauses()


class SqlPauses:
    """The table of pauses."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._installing = InstallingDatabase(database, generation_tables(database.dialect))
        self._statements = statements_of("inorder.topics", database.dialect, "pauses.sql")
        self._is_there = False

    def read(self) -> Pauses:
        """All pauses; none where the table is missing, as after an upgrade without the right to create it."""
        self._is_there = self._is_there or bool(self._database.execute(self._statements["exists"]).rows)
        if not self._is_there:
            return NO_PAUSES
        return Pauses(tuple(_decoded(self._database.execute(self._statements["read"]).rows)))

    def pause(self, kind: PauseKind, name: str, *, reason: str, by: str) -> None:
        """Pauses something, or replaces the reason of its pause."""
        row = {"kind": kind.value, "name": name, "reason": reason, "paused_by": by}
        self._installing.execute(self._statements["pause"], row)

    def resume(self, kind: PauseKind, name: str) -> bool:
        """Ends a pause; False if there is none."""
        return self._installing.execute(self._statements["resume"], {"kind": kind.value, "name": name}).count == 1

    def close(self) -> None:
        """Closes the connection; may be called twice."""
        self._database.close()


def _decoded(rows: Iterable[tuple[object, ...]]) -> Iterable[Pause]:
    for kind, *rest in rows:
        if kind in list(PauseKind):  # a later version may pause more
            yield Pause(PauseKind(str(kind)), *map(str, rest))
