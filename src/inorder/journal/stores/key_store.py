"""The table of data keys, `inorder_journal_key`; `journal/keys.py` has the protocol."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from inorder.database.database import InstallingDatabase, open_database, statements_of
from inorder.model.journal import Key, PartitionOffset


class StoredSecret(NamedTuple):
    """A row of the table; None is a key that was destroyed."""

    secret: bytes | None


class KeyStore:
    """The data keys of all journals, in one database; safe for use by many threads."""

    def __init__(self, url: str) -> None:
        database = open_database(url, "inorder journal keys")
        self._statements = statements_of("inorder.journal", database.dialect, "keys.sql")
        self._database = InstallingDatabase(database, self._statements.starting_with("install"))

    def insert(self, key: Key, key_id: UUID, secret: bytes, life: UUID | None, seen: PartitionOffset) -> None:
        self._execute("insert", key, key_id=key_id.hex, secret=secret, life=_text(life), **_at(seen))

    def read(self, key: Key, key_id: UUID) -> StoredSecret | None:
        rows = self._execute("read", key, key_id=key_id.hex).rows
        return StoredSecret(rows[0][0]) if rows else None

    def of_life(self, key: Key, life: UUID) -> tuple[UUID, bytes] | None:
        rows = self._execute("of_life", key, life=str(life)).rows
        return (UUID(rows[0][0]), rows[0][1]) if rows else None

    def adopt(self, key: Key, key_id: UUID, life: UUID, place: PartitionOffset) -> None:
        """Records the life that an append with a key has begun; a key that has one already keeps it."""
        self._execute("adopt", key, key_id=key_id.hex, life=str(life), **_at(place))

    def without_life(self, key: Key, before: PartitionOffset) -> dict[UUID, int]:
        """The keys without a life that were made before an offset, and where."""
        rows = self._execute("without_life", key, partition=before.partition, before=before.offset).rows
        return {UUID(key_id): int(seen) for key_id, seen in rows}

    def destroy(self, key: Key, key_id: UUID) -> None:
        self._execute("destroy", key, key_id=key_id.hex)

    def destroy_lives(
        self, key: Key, life: UUID | None, before: PartitionOffset | None, spared: UUID | None = None
    ) -> None:
        """Destroys the keys of a life, and of the lives that were there before an offset, but one."""
        at = (-1, -1) if before is None else (before.partition, before.offset)
        bound = {"partition": at[0], "before": at[1], "life": _text(life) or "", "spared": _text(spared) or ""}
        self._execute("destroy_lives", key, **bound)

    def close(self) -> None:
        """Disconnects; may be called twice."""
        self._database.close()

    def _execute(self, name: str, key: Key, **bound: Any) -> Any:
        return self._database.execute(self._statements[name], {"topic": key.topic, "id": key.id, **bound})


def _at(place: PartitionOffset) -> dict[str, int]:
    return {"partition": place.partition, "seen": place.offset}


def _text(life: UUID | None) -> str | None:
    return None if life is None else str(life)
