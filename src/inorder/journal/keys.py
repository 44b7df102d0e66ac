"""Data keys of journals: after a purge, the bytes of its events that Kafka still retains cannot be read.

Off unless `journal.keys` names a database. Then the payload of each event and snapshot is sealed by the writer
(AES-256-GCM) with a key of its journal's life, a life being the journal between two purges (`life.py`), and opened by
the reader. Everything in between copies sealed bytes and needs no key: topic, replicator, store, audit. A purge
destroys the keys of the life that it ends. Ids, numbers, times, tags, metadata and headers are not sealed.

    a sealed payload    mark, id of the key, nonce, ciphertext; binary for Kafka Journal and for the stores
    what it is bound to topic, id of the journal, kind (event or snapshot), number: moved elsewhere, it does not open

**What is authoritative.** For what counts, and when a life ends: the topic, as always. For whether a key exists: its
row in `inorder_journal_key`. A row is never deleted: a key that is destroyed has no `secret`. So it differs from a key
that is missing, because the database is another one or was restored.

**Which life a key belongs to.** A life is named by the place of its first append, which is known only after that. So
the key for it is written first, without a life and with the mark at which there was no journal; when the append is
known to count, the key gets the name. An append to a life that has begun takes a key with that name, or makes one.
Every append is on the condition that the life is the one that was seen. So one that comes after a purge is void, also
if it has no condition of its own; it is then sealed again, with a key of the life that it finds.

**When a key is destroyed.** After the record of the purge is acknowledged, in the same call:

| key                                      | destroyed                                                                 |
|---|---|
| of the life that the purge names         | always: that life is over, whether this purge ended it or another did     |
| of another life, seen before the mark    | always, unless it is the one that was there at the mark and is not meant  |
| without a life, made before the mark     | if the log has its record before the mark; else that may still come       |

"The mark" is the one at which the purge saw the journal; if it could not see it, the place of the purge itself, which
then has no condition.

Invariants:

1. A key is written before the record that needs it is sent, and destroyed only when no event that it seals counts, nor
   can count. So an event that can be read in its journal can be opened.
2. After a purge has returned, no event of the life that it names can be opened: not from Kafka, the store, a snapshot,
   or a backup of these.
3. A payload opens only as the event that it was written as.

Failure table:

| what happens                                | what follows                                                         |
|---|---|
| a crash between the record of a purge and   | the journal is purged, and its key is left. `purge` again, with the  |
| the destruction of its key                  | same `life` if a new one has begun, destroys it                      |
| the key database is away                    | appends and reads of sealed events raise before anything is written; |
|                                             | a purge after its record is: repeat it as above. A journal that      |
|                                             | expired is purged by hand: the job does not find it again            |
| a writer dies before its append             | a key without a record; it seals nothing                             |
| a writer dies after the first append of a   | the key has no life. It opens the events. The next writer makes      |
| life, before it recorded the life           | another; a purge finds the first by its record in the log            |
| the log has lost that record                | the key stays: of what it seals Kafka has nothing any more           |
| two writers begin a life                    | one append is void; its writer destroys its key                      |
| a purge comes during an append              | the append is void, or before it: never sealed with a key that is    |
|                                             | destroyed                                                            |
| a subscription or a projection reaches an   | the event is left out: it is purged, and such events may come or not |
| event whose key is destroyed                |                                                                      |
| a read does                                 | `ShreddedError`: it began before the purge. An update recovers again |
| the row of a key is missing, because the    | `DamagedRecordError`, as for any record that cannot be read: never   |
| database is another one or was restored     | a skipped event                                                      |
| a payload was changed, or moved             | the same                                                             |
| a life that Kafka Journal's replicator has  | it has no name: appends are refused                                  |
| stored                                      |                                                                      |
| Kafka Journal, or an older inorder, purges  | the key is left until inorder purges the journal again               |

A process keeps keys in memory for a minute, so that a reader does not need a query for each event. Payloads that were
written before `journal.keys` was set are read as they are, and are not destroyed by a purge.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID, uuid4

import orjson

from inorder.database.database import InstallingDatabase, open_database, statements_of
from inorder.journal.action import NOT_BEGUN
from inorder.journal.codec import pack_payload, unpack_payload
from inorder.model.errors import ConfigurationError, DamagedRecordError, ShreddedError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, Payload, SeqNr, Snapshot

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED: Final = b"inorder.sealed\x01"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
MAX_CACHED: Final = 10_000
CACHE_SECONDS: Final = 60.0
_KEY_AT: Final = len(SEALED)
_NONCE_AT: Final = _KEY_AT + 16
_TEXT_AT: Final = _NONCE_AT + NONCE_BYTES


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key with which a writer seals; without a life it is for the append that begins one."""

    id: UUID
    secret: bytes = field(repr=False)
    has_life: bool = True


def key_id_of(payload: Payload) -> UUID | None:
    """The id of the key that sealed a payload; None if it is not sealed."""
    if isinstance(payload, bytes) and payload.startswith(SEALED) and len(payload) > _TEXT_AT:
        return UUID(bytes=payload[_KEY_AT:_NONCE_AT])
    return None


class JournalKeys:
    """The data keys of journals in a database; safe for use by many threads."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "journal.keys is set, which needs the package cryptography; it is not installed.",
                hint="Install it with `pip install 'inorder[crypto]'`.",
            ) from error
        self._cipher: type[AESGCM] = AESGCM
        self._invalid = InvalidTag
        self._store = KeyStore(url)
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: OrderedDict[tuple[Key, UUID], tuple[float, StoredSecret]] = OrderedDict()

    def take(self, key: Key, life: UUID | None, mark: PartitionOffset) -> DataKey:
        """The key for an append to the life that a journal has at a mark; its row is written before this returns."""
        if life is None:
            raise ConfigurationError(
                f"The journal {key} is in a life without a name, which another replicator has stored: it cannot have"
                " a key that a purge destroys.",
                hint="Purge it and let it begin again, or append to it by a program without journal.keys.",
            )
        found = None if life == NOT_BEGUN else self._store.of_life(key, life)
        if found is not None:
            return DataKey(*found)
        made = DataKey(uuid4(), os.urandom(KEY_BYTES), has_life=life != NOT_BEGUN)
        self._store.insert(key, made.id, made.secret, life if made.has_life else None, mark)
        return made

    def keep(self, key: Key, used: DataKey, life: UUID | None, place: PartitionOffset) -> None:
        """Records the life that an append at a place belongs to."""
        if not used.has_life and life is not None:
            self._store.adopt(key, used.id, life, place)

    def drop(self, key: Key, used: DataKey) -> None:
        """Destroys a key whose append is void, or was not sent, unless it is that of a life."""
        if not used.has_life:
            self._store.destroy(key, used.id)

    def shred(
        self,
        key: Key,
        life: UUID | None,
        before: PartitionOffset | None,
        spared: UUID | None,
        find_sealed: Callable[[int, PartitionOffset], set[UUID]],
    ) -> None:
        """Destroys keys after a purge; `find_sealed` lists the keys of the log's appends between two offsets."""
        self._store.destroy_lives(key, life, before, spared)
        if before is not None and spared is None:
            waiting = self._store.without_life(key, before)
            if waiting:
                for id in waiting.keys() & find_sealed(min(waiting.values()), before):
                    self._store.destroy(key, id)
        with self._lock:
            for each in [each for each in self._cached if each[0] == key]:
                del self._cached[each]

    def seal_events(self, key: Key, used: DataKey, events: Sequence[Event]) -> list[Event]:
        return [replace(each, payload=self._seal(used, each.payload, _bind(key, each.seq_nr))) for each in events]

    def seal_snapshot(self, key: Key, used: DataKey, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, payload=self._seal(used, snapshot.payload, _bind(key, snapshot.seq_nr, "snapshot")))

    def open_event(self, key: Key, record: EventRecord) -> EventRecord:
        """The event as it was written; raises `ShreddedError` if its key is destroyed."""
        payload, place = record.event.payload, record.partition_offset
        id = key_id_of(payload)
        if id is None or not isinstance(payload, bytes):
            return record
        opened = self._open(key, id, payload, _bind(key, record.seq_nr), record.seq_nr, place)
        return replace(record, event=replace(record.event, payload=opened))

    def open_events(self, key: Key, records: Iterator[EventRecord]) -> Generator[EventRecord, None, None]:
        try:
            for record in records:
                yield self.open_event(key, record)
        finally:
            if isinstance(records, Generator):
                records.close()

    def open_snapshot(self, key: Key, snapshot: Snapshot) -> Snapshot:
        payload = snapshot.payload
        id = key_id_of(payload)
        if id is None or not isinstance(payload, bytes):
            return snapshot
        bound = _bind(key, snapshot.seq_nr, "snapshot")
        return replace(snapshot, payload=self._open(key, id, payload, bound, snapshot.seq_nr, None))

    def close(self) -> None:
        """Disconnects and forgets; may be called twice."""
        with self._lock:
            self._cached.clear()
        self._store.close()

    def _seal(self, used: DataKey, payload: Payload, bound: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(used.secret).encrypt(nonce, pack_payload(payload), bound)
        return SEALED + used.id.bytes + nonce + sealed

    def _open(
        self, key: Key, id: UUID, payload: bytes, bound: bytes, seq_nr: SeqNr, place: PartitionOffset | None
    ) -> Payload:
        stored = self._secret(key, id)
        if stored is None:
            why = f"its key {id} is not in the database of journal.keys"
            raise _damaged(key, seq_nr, place, why, "Check that journal.keys is the database of all writers")
        if stored.secret is None:
            raise ShreddedError(
                f"Number {seq_nr} of {key} cannot be read: its key was destroyed by a purge.",
                hint="The journal was purged since; read it again.",
            )
        try:
            text = self._cipher(stored.secret).decrypt(payload[_NONCE_AT:_TEXT_AT], payload[_TEXT_AT:], bound)
            return unpack_payload(text)
        except (self._invalid, ValueError) as error:
            why = "its payload was not sealed for it, or was changed"
            raise _damaged(key, seq_nr, place, why, "Find its writer") from error

    def _secret(self, key: Key, id: UUID) -> StoredSecret | None:
        now = self._clock()
        with self._lock:
            found = self._cached.get((key, id))
        if found is not None and now - found[0] < CACHE_SECONDS:
            return found[1]
        stored = self._store.read(key, id)
        if stored is not None:
            with self._lock:
                self._cached[key, id] = now, stored
                self._cached.move_to_end((key, id))
                if len(self._cached) > MAX_CACHED:
                    self._cached.popitem(last=False)
        return stored


def _damaged(key: Key, seq_nr: SeqNr, place: PartitionOffset | None, why: str, hint: str) -> DamagedRecordError:
    """An error at the place of the event; a snapshot has none."""
    return DamagedRecordError(
        f"Number {seq_nr} of {key} cannot be read: {why}.",
        hint=f"{hint}; a purge of this journal lets it start over.",
        topic=key.topic,
        partition=0 if place is None else place.partition,
        offset=0 if place is None else place.offset,
    )


def _bind(key: Key, seq_nr: SeqNr, kind: str = "event") -> bytes:
    return orjson.dumps([kind, key.topic, key.id, seq_nr])


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
