"""Retries dead letters: an old record is applied late, and never over newer data.

A dead letter keeps its coordinates, and they stay its version: whenever it is applied, it is applied as the record
(generation, offset) that it was. The reason for its rejection must have changed meanwhile: the mapping, the schema or
the table.

**What is authoritative.** Whether the letter still exists: its row in `inorder_dead_letter`, deleted in the transaction
that writes the target row. Whether newer data exists: the version of the row, or of its tombstone, and where that
cannot tell, the topic.

**Why the version alone cannot tell.** A record that changes nothing does not move the version of its row. Offset 5
wrote `a`; offset 10, `b`, became a dead letter; offset 12, `a` again, was identical. The version is 5, and a guard that
compares it alone would now write `b` over the newer `a`. So for a row that is older than the letter, the records behind
the letter, up to the pointer, are searched for its key (`NewerRecords`). If the topic no longer holds them, nothing is
proven, and the letter stays: *unproven*.

**Through the table or through the topic.** Through the table, the default, the record is written to its row with the
version that it always had. Through the topic, its bytes are sent once more, and every reader takes them for the newest
record of their key. That is right only if no newer one is in the partition, applied or not yet read, and Kafka has no
conditional write. It has transactions, though: the record is sent in one, which gives it an offset and holds readers
back in front of it; all records before that offset are searched; then the transaction is committed or aborted. The
alternative, headers with the old coordinates, is no solution: readers that do not know them, including older versions
of ours, would take the old data for the newest. The record gets one header, `inorder.retry`, that names the letter; no
reader decides by it. The letter's own headers are not stored, so they are not sent. Choose the topic where several
readers need the record.

The transaction, for some letters of a partition in offset order:

    lock the pointer row      no slice of the partition is applied meanwhile
    compare versions          a row that is as new or newer: stale
    search the topic          where the row is older and there are records behind the letter; always for a letter that
                              goes through the topic
    delete the letter         a second retry finds none
    write the row             by the rules of the mapping, guarded by version as always; or commit to the topic
    commit

Invariants:

1. The letter is gone if and only if its record was applied, changed nothing, or was settled as stale by choice.
2. A row never loses a value to a record older than the one that wrote it, or that confirmed it.
3. Letters of one key that are retried together end as if they had been valid when they came.

**Partial updates.** A row has one version, not one for each field. A letter that carries other fields than the newer
record did is stale as a whole: what it would add cannot be decided.

Failure table:

| what happens                               | what follows                                                |
|--------------------------------------------|-------------------------------------------------------------|
| crash before COMMIT                        | the database rolls back: row and letter are as before       |
| crash after COMMIT                         | both are done; a second retry finds no letter               |
| COMMIT sent, answer lost                   | it runs again: a letter that is gone now was committed      |
|                                            | (`settle_commit`)                                           |
| crash between the commit to the topic and  | the letter still exists, and the record that was sent is    |
| that of the database                       | newer than it: the next retry finds it stale                |
| crash while it is sent                     | the broker aborts after 30 s; until then readers wait       |
| two retries, or a retry and a discard      | the letter's row admits one; the other finds none           |
| the pipeline runs meanwhile                | the pointer lock makes it wait, for some milliseconds or as |
|                                            | long as it takes to read what it applied since the search   |
| a newer record waits in the topic, unread  | through the table: it is applied afterwards and wins.       |
|                                            | Through the topic: stale                                    |
| a newer record changed nothing             | the search of the topic finds it: stale                     |
| that record is no longer in the topic      | unproven: the letter stays                                  |
| the topic has switched to a newer          | decided by the version of the row, or not at all: stale or  |
| generation, or is switching now            | unproven. Nothing is sent to a topic that is closed         |
| the record is still invalid, or the        | rejected, with the current reason; the letter stays, and    |
| database still refuses it                  | the others of the transaction are not affected              |
| Kafka is away                              | an error where the topic must be searched; what was         |
|                                            | committed before is done, the rest is as before             |
| the record has no Kafka key, and its topic | rejected, until `keyless = "apply"`: versions of two         |
| several partitions                         | partitions do not say which record is newer                 |
| the pointers were lost, the topic replayed | the record is valid now and is applied at its own offset; a |
|                                            | retry of its letter then finds nothing to do                |
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial

from inorder.engines.slice_work import PartitionReader, Slice, TopicSource, settle_commit
from inorder.model.errors import GuaranteeError, InorderError, RejectedError, TransientError
from inorder.model.partitioning import Place
from inorder.pipeline.decoding import Decision, Decoder, Ignored, Rejected, decode_from
from inorder.pipeline.mapping import TableMapping, encode_key
from inorder.pipeline.stores.ports import (
    ConditionalLog,
    DeadLetters,
    FoldedRow,
    RowKey,
    SliceTransaction,
    StoredLetter,
    TableStore,
)

CHUNK = 10_000
PATIENCE_SECONDS = 20.0
"""How long the topic may return nothing; shorter than a database lets an idle transaction hold its lock."""

Decode = Callable[[bytes | None, bytes | None], Decision]


class Fate(StrEnum):
    """What became of a letter. Applied, unchanged and sent letters are gone, stale ones by choice; the others stay."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    """It changes nothing, or the mode does not allow the change."""
    SENT = "sent"
    """To the topic, from where the pipeline applies it."""
    STALE = "stale"
    UNPROVEN = "unproven"
    REJECTED = "rejected"
    GONE = "gone"
    """Another command settled it."""


@dataclass(frozen=True, slots=True)
class RetryResult:
    """The fate of one letter, with a reason where there is one."""

    pipeline: str
    id: str
    fate: Fate
    detail: str = ""


class _UndoneError(InorderError):
    """Rolls back the writes for a letter, which stays."""

    def __init__(self, retried: RetryResult) -> None:
        super().__init__(retried.detail)
        self.retried = retried


class _ReadOnly(Exception):  # noqa: N818 - not an error
    """Ends a transaction that only reads, and carries its result."""

    def __init__(self, end: int) -> None:
        self.end = end


@dataclass(frozen=True, slots=True)
class _Valid:
    """A letter that the current mapping accepts; without a row if it changes nothing."""

    letter: StoredLetter
    row: FoldedRow | None

    @property
    def version(self) -> tuple[int, int]:
        """The version of the record, whenever it is applied."""
        return self.letter.generation, self.letter.offset

    def fate(self, fate: Fate, detail: str = "") -> RetryResult:
        return RetryResult(self.letter.pipeline, self.letter.id, fate, detail)


@dataclass(frozen=True, slots=True)
class _Locked:
    """What is known while the pointer is locked."""

    end: int
    """The pointer: every record before it is in a table, a letter, or changed nothing."""
    newest_generation: int
    """Records of a newer generation than the letter's are in another Kafka topic."""
    never_applied: Callable[[], frozenset[int]]
    """Offsets of records that are in no table; read only where they matter, since there may be many."""
    is_again: bool
    """Whether the answer to an earlier attempt was lost."""


@dataclass(frozen=True, slots=True)
class Retrier:
    """Retries letters of one pipeline; with a `log` it sends them to the topic instead of writing their rows."""

    store: TableStore
    mapping: TableMapping
    source: TopicSource
    letters: DeadLetters
    reason: str = ""
    settles_stale: bool = False
    log: ConditionalLog | None = None
    takes_records: Callable[[str], bool] = lambda _topic: True
    """Whether a Kafka topic is the current generation, not one that was or is being replaced."""
    _sent: dict[int, int] = field(default_factory=dict)
    """The new offsets in the topic of letters that were sent, and their original offsets."""

    def retry(self, letters: Sequence[StoredLetter]) -> list[RetryResult]:
        """Retries letters of one partition, given in offset order, in one transaction."""
        judged = [self._decode(letter) for letter in letters]
        valid = [one for one in judged if isinstance(one, _Valid)]
        fates = iter(self._retry(valid) if valid else ())
        return [next(fates) if isinstance(one, _Valid) else one for one in judged]

    def _decode(self, letter: StoredLetter) -> _Valid | RetryResult:
        batch = Slice(letter.topic, letter.partition, [letter.offset], [letter.key], [letter.value], [None])
        decoded = decode_from(letter.offset, self.mapping, batch, partial(self._needs_key, letter.topic))
        if not decoded.letters:
            return _Valid(letter, decoded.rows[0] if decoded.rows else None)
        [rejected] = decoded.letters
        return RetryResult(letter.pipeline, letter.id, Fate.REJECTED, f"{rejected.detail} ({rejected.code})")

    def _needs_key(self, topic: str) -> bool:
        """As for the slice that rejected it: a retry cannot order what the pipeline cannot order."""
        return self.mapping.keyless == "reject" and len(self.store.pointers(topic)) > 1

    def _retry(self, valid: Sequence[_Valid]) -> list[RetryResult]:
        newer = self._newer_records(valid)
        first = valid[0].letter
        newer.read_to(self._end_of_search(valid))

        def write(transaction: SliceTransaction, lost: list[RetryResult] | None) -> list[RetryResult]:
            locked = self._lock(transaction, first, is_again=lost is not None)
            return [self._settle(transaction, one, locked, newer) for one in valid]

        return settle_commit(
            lambda: self.store.slice_transaction(first.topic, first.partition),
            write,
            _combine,
            what=f"the retry of letters of {first.topic}[{first.partition}]",
            hint="`inorder dead-letters list` shows which are left; it is safe to retry them again.",
        )

    def _newer_records(self, valid: Sequence[_Valid]) -> NewerRecords:
        keys: dict[bytes | None, set[RowKey]] = {}
        for one in valid:
            if one.row is not None:
                keys.setdefault(one.letter.key, set()).add(one.row.key)
        first = valid[0].letter
        decode = Decoder(self.mapping).decode
        return NewerRecords(self.source, (first.topic, first.partition), first.offset + 1, decode, keys)

    def _end_of_search(self, valid: Sequence[_Valid]) -> int:
        """How far the topic must be searched, as of now, so that most of it is read without holding the lock."""
        first = valid[0].letter
        if self.log is not None:
            extent = (self.source.extents(first.topic) or {}).get(first.partition)
            return extent.end if extent else 0
        try:
            with self.store.slice_transaction(first.topic, first.partition) as transaction:
                end = transaction.lock_pointer().next_offset
                versions = [(one, transaction.version(one.row.key)) for one in valid if one.row is not None]
                asks = any(version is not None and version < one.version for one, version in versions)
                raise _ReadOnly(end if asks else 0)
        except _ReadOnly as read:
            return read.end

    def _lock(self, transaction: SliceTransaction, first: StoredLetter, *, is_again: bool) -> _Locked:
        end = transaction.lock_pointer().next_offset
        # Read under the lock, so nothing is applied or rejected meanwhile.
        never_applied = cache(lambda: self.letters.never_applied(first.place, first.offset - 1))
        return _Locked(end, self.letters.newest_generation(first.pipeline), never_applied, is_again)

    def _settle(self, transaction: SliceTransaction, one: _Valid, locked: _Locked, newer: NewerRecords) -> RetryResult:
        retried = self._judge(transaction, one, locked, newer)
        if retried is None:
            try:
                with transaction.savepoint():
                    return self._carry_out(transaction, one, locked, newer)
            except _UndoneError as undone:
                retried = undone.retried
            except RejectedError as error:
                retried = one.fate(Fate.REJECTED, error.detail or error.message)
        if retried.fate is Fate.STALE and self.settles_stale:
            is_ours = transaction.settle(one.letter.offset, "stale", self.reason)
            return retried if is_ours else one.fate(Fate.GONE)
        return retried

    def _judge(
        self, transaction: SliceTransaction, one: _Valid, locked: _Locked, newer: NewerRecords
    ) -> RetryResult | None:
        """Why the letter must stay; None if nothing newer is known."""
        if locked.is_again and one.letter.offset not in locked.never_applied():
            return one.fate(Fate.GONE)
        if one.row is None:
            return None
        version = transaction.version(one.row.key)
        if version == one.version:
            return None
        if version is not None and version > one.version:
            return one.fate(Fate.STALE, f"Its row has generation {version[0]}, offset {version[1]}.")
        if version is None and self.log is None:
            return None
        if locked.newest_generation > one.letter.generation:
            later = f"The topic has switched to generation {locked.newest_generation}"
            return one.fate(Fate.UNPROVEN, f"{later}; whether that has a newer record of the key is unknown.")
        return self._objection(one, locked.end, locked, newer) if self.log is None else None

    def _objection(self, one: _Valid, end: int, locked: _Locked, newer: NewerRecords) -> RetryResult | None:
        """Why the letter must stay, by a search of the topic up to an offset."""
        if one.row is None:
            return None
        # Older letters that this retrier has sent are older than this one, whatever their new offset.
        older = {at for at, letter in self._sent.items() if letter < one.letter.offset}
        match newer.after(one.row.key, one.letter.offset, end, apart_from=locked.never_applied() | older):
            case Unknown(reason):
                return one.fate(Fate.UNPROVEN, reason)
            case None:
                return None
            case offset:
                return one.fate(Fate.STALE, f"A newer record of its key is at offset {offset}.")

    def _carry_out(
        self, transaction: SliceTransaction, one: _Valid, locked: _Locked, newer: NewerRecords
    ) -> RetryResult:
        letter = one.letter
        if not transaction.settle(letter.offset, "retry", self.reason):
            return one.fate(Fate.GONE)
        if one.row is None:
            return one.fate(Fate.UNCHANGED, "It changes nothing.")
        if transaction.version(one.row.key) == one.version:
            return one.fate(Fate.UNCHANGED, "Its row has it already.")
        if self.log is None:
            return self._write(transaction, one, one.row)
        return self._send(self.log, one, locked, newer)

    def _send(self, log: ConditionalLog, one: _Valid, locked: _Locked, newer: NewerRecords) -> RetryResult:
        def objection(offset: int) -> RetryResult | None:
            # Checked after sending: a switch measures the topic after our transaction has ended, or had begun before.
            if not self.takes_records(one.letter.topic):
                return one.fate(Fate.UNPROVEN, "The topic was or is being switched; retry it through the table.")
            return self._objection(one, offset, locked, newer)

        sent = log.send_unless(one.letter, objection)
        if isinstance(sent, RetryResult):
            raise _UndoneError(sent)
        self._sent[sent] = one.letter.offset
        return one.fate(Fate.SENT, f"It is at offset {sent} now.")

    def _write(self, transaction: SliceTransaction, one: _Valid, row: FoldedRow) -> RetryResult:
        written = transaction.upsert([row], one.letter.generation)
        if written.stale:
            raise _UndoneError(one.fate(Fate.STALE, "Its row became newer meanwhile."))
        return one.fate(Fate.APPLIED if written.applied else Fate.UNCHANGED)


def _combine(lost: Sequence[RetryResult], now: Sequence[RetryResult]) -> list[RetryResult]:
    """The fates after a lost answer: this retry settled a letter that is gone now, if its first attempt tried to."""
    return [then if after.fate is Fate.GONE else after for then, after in zip(lost, now, strict=True)]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The topic no longer holds the records that would decide."""

    reason: str


class NewerRecords:
    """Searches a partition for newer records of some keys, because the table cannot always tell.

    A record that changes nothing leaves no trace in the table (`slice.py`, identical writes). So a row whose version is
    below that of a dead letter may still have had a newer record, and only the topic holds it.

    Records are read from an offset on, as far as a caller asks, and never twice. `keys` are the row keys to search for,
    by the Kafka key of their dead letter. A record that the current mapping rejects may have been applied by an older
    one, so its Kafka key alone makes it count; without a Kafka key it counts for every row.
    """

    def __init__(
        self,
        source: TopicSource,
        place: Place,
        start: int,
        decode: Decode,
        keys: Mapping[bytes | None, Collection[RowKey]],
    ) -> None:
        self._source = source
        self._place = place
        self._decode = decode
        self._by_kafka_key = keys
        self._keys = frozenset(key for some in keys.values() for key in some)
        # The record key of a row is always the same, so records with any other one need not be decoded.
        self._record_keys = {None, *keys, *map(encode_key, self._keys)}
        self._next = start
        self._seen: defaultdict[RowKey, list[int]] = defaultdict(list)

    def after(self, key: RowKey, offset: int, end: int, *, apart_from: Collection[int]) -> int | Unknown | None:
        """The first record of a key after an offset and before the end, or None.

        `apart_from` are offsets of records that are known to be in no table.
        """
        if (unknown := self.read_to(end)) is not None:
            return unknown
        return next((at for at in self._seen[key] if offset < at < end and at not in apart_from), None)

    def read_to(self, end: int) -> Unknown | None:
        """Reads all records before the end that are not read yet."""
        if self._next >= end:
            return None
        topic, partition = self._place
        extent = (self._source.extents(topic) or {}).get(partition)
        if extent is None or extent.first > self._next or extent.end < end:
            held = "does not exist" if extent is None else f"holds offsets {extent.first} to {extent.end - 1}"
            needed = f"{self._next} to {end - 1}"
            return Unknown(
                f"{topic}[{partition}] {held}; only offsets {needed} show whether the key has a newer record."
            )
        try:
            # A new reader each time, so that the end that it reports lies at or behind the requested end.
            with closing(self._source.open({self._place: self._next}, reports_ends=True)) as reader:
                self._read_until(reader, end)
        except GuaranteeError as error:
            return Unknown(error.message)
        return None

    def _read_until(self, reader: PartitionReader, end: int) -> None:
        patience = time.monotonic() + PATIENCE_SECONDS
        while self._next < end:
            slices, ended = reader.read(CHUNK, 0.2)
            for batch in slices:
                self._remember(batch)
                patience = time.monotonic() + PATIENCE_SECONDS
            # Where the last offsets are no records (transaction markers, compaction), the end is reported instead.
            if self._place in ended:
                self._next = max(self._next, end)
            if time.monotonic() > patience:
                topic, partition = self._place
                raise TransientError(f"Reading {topic}[{partition}] timed out: no record for {PATIENCE_SECONDS:.0f} s.")

    def _remember(self, batch: Slice) -> None:
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
            if key in self._record_keys:
                for row in self._rows(key, value):
                    self._seen[row].append(offset)
        self._next = max(self._next, batch.next_offset)

    def _rows(self, key: bytes | None, value: bytes | None) -> Iterable[RowKey]:
        """The rows that a record may have written, of those to search for."""
        match self._decode(key, value):
            case Ignored():
                return ()
            case Rejected():
                return self._keys if key is None else self._by_kafka_key.get(key, ())
            case decoded:
                return (decoded.key,) if decoded.key in self._keys else ()
