"""One slice, one transaction: how records of a Kafka partition reach a table exactly once and in order.

A *slice* is a run of records of one Kafka partition in offset order. An engine (Spark's micro-batches, resident tasks,
a test) reads slices from Kafka and calls `apply_slice` for each. Everything that makes the effect exact is here and in
the database transaction, nothing in the engine.

**What is authoritative.** The pointer row of (pipeline, topic, partition) in the target database. All records below its
`next_offset` are in the table, in the dead letters, or were ignored; no record at or above it has left a trace. It
moves in the same commit as the rows, so the two cannot disagree, and its counters are exact.

**What is only a hint.** Spark's checkpoint and batch ids, the offsets that an engine planned, the driver's memory of
the last pointer, the figures in a `SliceOutcome` after a lost COMMIT, every clock. A start reads the pointers and
continues there.

**What the topic must provide.** All records of a key are in one partition. Offsets of two partitions cannot be
compared, so no reader can order a key that is in both. A record whose Kafka key is not the key of its row is therefore
refused, and so is one without a Kafka key if the topic has several partitions: it becomes a dead letter. The pointer
rows say how many there are, since every partition gets its row before its first record is read. Offsets rise but have
holes (transaction markers, aborted records, compaction): a missing number is no gap.

The transaction:

    lock the pointer row          waits for any other holder, then sees what it committed
    compare the topic's id        raise if the records are of another topic of that name
    cut                           drop what is behind the end of a closed generation
    plan                          drop what is below the pointer; raise if the pointer moved back
    decode and validate           an invalid record becomes a dead letter and never stops the pipeline
    fold                          the records of each key in offset order, to one row or one delete
    write, guarded by version     only rows and tombstones with a lower (generation, offset) change
    bury the dead letters
    move the pointer              to the offset of the last record + 1, counters with it
    commit

Invariants:

1. A pointer never moves back, and the same offset never passes it twice.
2. Rows, dead letters, counters and pointer of a slice become visible together or not at all.
3. A row equals the fold, in offset order, of its key's valid records below the pointer, by the rules of the mode.
4. An older record never overwrites a newer one: the pointer drops it; if pointers are lost, the version does.
5. A key has a row or a tombstone, never both, and the version of the one or the other never falls.

**Identical writes** do not touch the row, which saves most of the work when publishers repeat themselves. Its version
then stays behind the pointer, and this is exact because each record of the key above the version is identical to the
row *by itself*. For that, a fold whose records disagree on a field (true, then false: it *wavered*) moves the version
even if the row ends as it was. So if pointers are lost and the topic is replayed in any chunking, no value changes, not
even for a moment. Let a row have version v. A replayed slice that ends at or below v is refused by the guard. One that
begins above v holds only identical records. One that spans v contains the record at v and what follows: each field that
it carries was last written in that same range when the row was written, so its fold gives the values that the row has,
and at most the version rises.

**Deletes.** A record with a key and no value deletes its row. The version of the delete must outlive the row, or an
older record would create it again. It is kept in a table of its own, `inorder_tombstone`, and not in a column of the
target: readers of the target then need no condition to see only existing rows, counts and unique keys are right, and a
table that exists needs no new column. A newer record creates the row again, with none of its former values, and removes
the tombstone. The argument above holds with deletes: a delete always takes the version, so no record above the version
of a row or of a tombstone is one; and a replayed slice that spans the version contains all that came after the last
delete, or does not contain the delete at all.

**Modes.** In mode `insert` the first record of a key creates the row and the others are ignored; in mode `update`
records of a key without a row are ignored. Both are exact in any chunking, because the fold of a slice follows the same
rule.

**Records that the database refuses**, for a constraint or a value that does not fit, are distinguished from failures of
the environment by the error code. The first attempt is rolled back; the second isolates them, in one transaction again
(`_Isolation`). Only slices with such a record pay for it. If most records are refused, the table may be at fault: then
nothing is buried, and the partition waits (`brake.py`). One thing is not exact: records of a key in one slice are one
write, so a record that would be refused alone may pass together with a later one that corrects it. After pointers are
lost, a replay in other chunks may then decide otherwise.

**Records at which our own code fails.** Decoding has a boundary around each record (`decoding.py`). Any other error
that is none of ours, such as a driver that cannot encode a value, rolls the slice back. Then parts of it are tried and
rolled back until the records that fail alone are known (`_find_poison`); these become dead letters, and the rest is
applied in one transaction. Where no record fails alone, the slice is applied in two halves.

Failure table:

| what happens                              | what follows                                                 |
|-------------------------------------------|--------------------------------------------------------------|
| crash before or inside the transaction    | the database rolls back; the slice is read again from the    |
|                                           | pointer                                                      |
| crash after COMMIT, before it is reported | the replay finds the pointer past it and skips               |
| COMMIT sent, answer lost                  | the slice is applied again: the lock waits until the old     |
|                                           | session has ended, then the pointer says whether it was      |
|                                           | committed (`settle_commit`)                                  |
| zombie task beside its retry, two drivers | the row lock admits one; the other then sees the moved       |
|                                           | pointer and drops what is applied                            |
| zombie paused inside its transaction      | the server ends its idle session after a timeout, which      |
|                                           | frees the lock; when it wakes up, its connection is dead     |
| replay of any range, in any chunking      | offsets below the pointer are dropped, also in mid-slice     |
| checkpoint lost, stale or damaged         | nothing: each start creates a new one from the pointers      |
| database restored from a backup           | pointer and rows went back together. A running driver sees a |
|                                           | pointer below one it saw committed: `GuaranteeError`. A new  |
|                                           | start replays                                                |
| pointer rows lost                         | a running driver raises; the next one begins with the first  |
|                                           | records, in the highest generation of the table: a replay    |
|                                           | changes no value (invariant 4), and what is new is newer     |
| topic deleted and re-created              | its id differs from that in the pointer row:                 |
|                                           | `OtherTopicError`, nothing is applied; `inorder pipeline     |
|                                           | reset` begins the next generation                            |
| generation closed while a task reads on   | its end is in the pointer row; nothing behind it is applied  |
| holes in the offsets                      | nothing: only the order of offsets counts                    |
| a slice out of order                      | `GuaranteeError` before anything is written                  |
| the database refuses a record             | it alone is buried, with the message of the database; the    |
|                                           | rest of the slice is in the same commit                      |
| it refuses most records with one code     | everything is rolled back, nothing is buried; the partition  |
|                                           | waits until the table accepts them, the others go on         |
| the table was renamed or dropped, a       | the same: its partitions wait, other tables go on; with      |
| privilege revoked, a trigger is broken    | `max_refused_share = 1` the job ends                         |
| a deferred constraint or trigger fails at | as above: the second attempt checks it immediately, so one   |
| the COMMIT                                | record is buried, or the partition waits                     |
| it refuses a record until another one     | the record is tried again after the rest of its slice, up to |
| exists                                    | `max_attempts` times                                         |
| deadlock, lock timeout                    | everything is rolled back, and the slice is tried again      |
|                                           | after a short pause, a few times (`retry_conflicts`)         |
| disk full, server shutting down,          | `TransientError`: everything is rolled back and tried again  |
| connection lost                           | later, nothing is buried                                     |
| a late record of a deleted key            | its version is below the tombstone's: stale                  |
| a producer sends one key to two           | the record with the lower offset is stale; the log names the |
| partitions                                | row, a gauge counts the records                              |
| half a million invalid records in a row   | they are buried in bulk; a row each is all that they cost    |
| an error that nothing here expects, while | the slice is halved until the record is known; it alone is   |
| a record is decoded, folded or encoded    | buried, with the last line of the traceback                  |
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import islice
from operator import attrgetter
from typing import assert_never

from inorder.engines.measures import MeasureTally
from inorder.engines.progress import add_outcomes
from inorder.engines.slice_work import (
    STALE_KEYS,
    Apply,
    Measures,
    MovedBack,
    Skip,
    Slice,
    SliceOutcome,
    before_end,
    check_order,
    check_topic,
    halves,
    in_pieces,
    later_outcome,
    plan,
    retry_conflicts,
    settle_commit,
    without,
)
from inorder.model.errors import ConfigurationError, InorderError, MovedBackError, RejectedError, last_line
from inorder.pipeline.brake import Brake, Tally, table_fault
from inorder.pipeline.decoding import (
    UNEXPECTED,
    Decoded,
    NeedsKey,
    dead_letter,
    decode_changes,
    decode_from,
    needs_no_key,
)
from inorder.pipeline.mapping import TableMapping, encode_key
from inorder.pipeline.stores.ports import (
    DeadLetter,
    FoldedRow,
    RowKey,
    SliceCounters,
    SliceTransaction,
    TableStore,
    WriteCounts,
)

logger = logging.getLogger("inorder.pipeline")

REFUSED = "refused-by-database"

_FEW = 64
"""A write of so few rows is not halved further where the store writes them one by one as quickly."""
_FLOOD = 100
"""If more rows than this are refused, the cause is common to all of them; another attempt would only take time."""
_SHOWN_KEY = 80
_PIECE = 200
"""How many records of a slice are decided about at once where very many are refused."""
_LOGGED = 20
"""How many refused records of one slice are logged one by one."""
_NOT_THE_RECORDS = (InorderError, MemoryError)
"""Errors that say themselves what failed, or that a record is not to blame for."""


def apply_slice(
    store: TableStore, mapping: TableMapping, batch: Slice, expected: int = 0, brake: Brake | None = None
) -> SliceOutcome:
    """Applies what is new in the slice, in one transaction, and returns once it is known to be committed.

    Where very many records are refused and there is a brake, it is several transactions, so that the brake decides
    about the first ones before time is spent on the others.

    Raises `TransientError` when the environment failed (call again later), among them `MassRefusalError` when the brake
    makes the partition wait, and `GuaranteeError` when the pointer moved back or the slice is out of order.
    """
    check_order(batch)
    writer = _SliceWriter(mapping, batch, expected, brake)
    has_pieces = brake is not None and brake.is_on and len(batch) > _PIECE
    try:
        try:
            return _commit(store, writer)
        except RejectedError:
            # The first attempt is rolled back. Savepoints cost time, so only a slice that needs them has them.
            return _commit(store, replace(writer, isolates=True, most_refused=_FLOOD if has_pieces else None))
    except _Flood:
        return _apply_in_turn(store, mapping, in_pieces(batch, _PIECE), expected, brake)
    except ConfigurationError as error:
        if error.is_of_target and brake is not None and brake.is_on:
            raise table_fault(batch, mapping.table, error) from error
        raise
    except _NOT_THE_RECORDS:
        raise
    except Exception:  # noqa: BLE001 - the boundary of a slice
        if has_pieces:
            store.close()
            return _apply_in_turn(store, mapping, in_pieces(batch, _PIECE), expected, brake)
        return _apply_without_poison(store, writer)


def _apply_in_turn(
    store: TableStore, mapping: TableMapping, parts: Iterable[Slice], expected: int, brake: Brake | None
) -> SliceOutcome:
    """Applies the parts of a slice, each in a transaction of its own; a part that fails ends it."""
    outcomes: list[SliceOutcome] = []
    for part in parts:
        outcomes.append(apply_slice(store, mapping, part, expected, brake))
        expected = max(expected, outcomes[-1].next_offset)
    return reduce(add_outcomes, outcomes)


def _apply_without_poison(store: TableStore, writer: _SliceWriter) -> SliceOutcome:
    """Applies a slice after an error that nothing expects; records that fail by themselves are buried."""
    mapping, batch, expected = writer.mapping, writer.batch, writer.expected
    poison = _find_poison(store, mapping, batch, expected)
    try:
        return _commit(store, replace(writer, isolates=True, poison=poison))
    except _NOT_THE_RECORDS:
        raise
    except Exception:
        if len(batch) == 1:
            raise
        store.close()
    return _apply_in_turn(store, mapping, halves(batch), expected, writer.brake)


def _find_poison(store: TableStore, mapping: TableMapping, batch: Slice, expected: int) -> dict[int, str]:
    """The offsets of records that fail by themselves, with the reason: tries parts of the slice, and commits none."""
    # The error may have left the connection in any state.
    store.close()
    try:
        with store.slice_transaction(batch.topic, batch.partition) as transaction:
            _SliceWriter(mapping, batch, expected, isolates=True, is_trial=True).write(transaction, None)
            raise _TrialOver
    except _TrialOver:
        return {}
    except _NOT_THE_RECORDS:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary of one record
        if len(batch) == 1:
            return {batch.offsets[0]: f"Applying it failed: {last_line(error)}"}
    first, second = halves(batch)
    return _find_poison(store, mapping, first, expected) | _find_poison(store, mapping, second, expected)


class _TrialOver(Exception):  # noqa: N818 - rolls a trial back
    """A part of a slice can be applied."""


class _Flood(Exception):  # noqa: N818 - caught where the slice is applied
    """So many rows are refused that the slice is better applied in pieces."""


def _commit(store: TableStore, writer: _SliceWriter) -> SliceOutcome:
    batch = writer.batch
    outcome = retry_conflicts(
        lambda: settle_commit(
            lambda: store.slice_transaction(batch.topic, batch.partition),
            writer.write,
            later_outcome,
            what=str(batch),
            hint="The pointer row says what is applied; the next start reads it.",
        )
    )
    if writer.brake is not None:
        writer.brake.commit()
    return outcome


@dataclass(frozen=True, slots=True)
class _SliceWriter:
    """The steps between BEGIN and COMMIT of one slice."""

    mapping: TableMapping
    batch: Slice
    expected: int
    brake: Brake | None = None
    isolates: bool = False
    most_refused: int | None = None
    """With more refused rows it gives up with `_Flood`."""
    poison: Mapping[int, str] = field(default_factory=dict)
    """Offsets of records that are buried without being decoded, with the reason."""
    is_trial: bool = False

    def needs_key(self, transaction: SliceTransaction) -> NeedsKey:
        """Whether the topic has several partitions, looked up once and only for a slice that asks."""
        if self.mapping.keyless == "apply":
            return needs_no_key
        return cache(lambda: self.batch.partition > 0 or transaction.partitions() > 1)

    def write(self, transaction: SliceTransaction, _lost: SliceOutcome | None) -> SliceOutcome:
        pointer = transaction.lock_pointer()
        check_topic(self.batch, pointer.topic_id)
        batch = before_end(self.batch, pointer.end)
        decision = plan(pointer.next_offset, self.expected, batch)
        nothing = SliceOutcome(batch.topic, batch.partition, pointer.next_offset, read=len(batch), replayed=len(batch))
        match decision:
            case MovedBack():
                raise _pointer_moved_back(self.mapping, batch, pointer.next_offset, self.expected)
            case Skip():
                return nothing
            case Apply(from_offset):
                needs_key, clean = self.needs_key(transaction), without(batch, self.poison)
                decoded = decode_from(from_offset, self.mapping, clean, needs_key)
                decoded = self._bury_poison(decoded, batch, from_offset)
                counters = self._write(transaction, clean, decoded, from_offset, pointer.generation, needs_key)
                if decoded.unknown:
                    transaction.note_unknown(decoded.unknown)
                transaction.move_pointer(batch.next_offset, counters, batch.leader_epoch)
                return replace(
                    nothing,
                    next_offset=batch.next_offset,
                    applied=counters.written.applied,
                    identical=counters.written.identical,
                    stale=counters.written.stale,
                    ignored=counters.ignored,
                    rejected=counters.rejected,
                    replayed=len(batch) - decoded.records,
                    stale_keys=shown_keys(counters.written.stale_keys),
                    measures=_measures(counters, decoded),
                )
            case _:
                assert_never(decision)

    def _bury_poison(self, decoded: Decoded, batch: Slice, from_offset: int) -> Decoded:
        found = [
            dead_letter(batch, bisect_left(batch.offsets, offset), UNEXPECTED, reason)
            for offset, reason in self.poison.items()
            if from_offset <= offset < batch.next_offset
        ]
        letters = [*decoded.letters, *found]
        return replace(decoded, letters=letters, records=decoded.records + len(found))

    def _write(
        self,
        transaction: SliceTransaction,
        batch: Slice,
        decoded: Decoded,
        from_offset: int,
        generation: int,
        needs_key: NeedsKey,
    ) -> SliceCounters:
        """Writes rows and dead letters; records in neither were ignored."""
        written, letters, states = WriteCounts(), decoded.letters, Counter[str]()
        messages: dict[int, str] = {}
        if self.isolates:
            isolation = _Isolation(
                transaction, self.mapping, batch, from_offset, generation, needs_key, self.most_refused
            )
            isolation.write(decoded.rows)
            written, states, messages = isolation.written, isolation.states, isolation.messages
            letters = sorted([*letters, *isolation.letters], key=attrgetter("offset"))
        elif decoded.rows:
            written = transaction.upsert(decoded.rows, generation)
        if self.brake is not None:
            sample = next((reason for _, reason in _reasons(letters, messages)), "")
            self.brake.check(_tally(decoded, letters, states), self.batch, sample)
        if letters:
            transaction.bury(letters)
            self._log(letters, messages)
        counted = written.applied + written.identical + written.stale + len(letters)
        return SliceCounters(written, decoded.records - counted, len(letters), Counter(each.code for each in letters))

    def _log(self, letters: Sequence[DeadLetter], messages: Mapping[int, str]) -> None:
        # A flood must not fill the log as well; the dead letters hold all of them.
        for letter, reason in islice(_reasons(letters, messages), 0 if self.is_trial else _LOGGED):
            fields = {
                "pipeline": self.mapping.pipeline,
                "topic": self.batch.topic,
                "partition": self.batch.partition,
                "offset": letter.offset,
                "code": letter.code,
                "reason": reason,
            }
            logger.warning("pipeline.record_refused", extra=fields)


def _measures(counters: SliceCounters, decoded: Decoded) -> Measures:
    tally = MeasureTally()
    for code, number in counters.codes.items():
        tally.add(f"refused/{code}", number)
    tally.add_labels("unknown", decoded.unknown)
    return tally.take()


def shown_keys(keys: Sequence[RowKey]) -> tuple[str, ...]:
    """The first few different keys, as records carry them."""
    return tuple(shorten_key(key) for key in islice(dict.fromkeys(keys), STALE_KEYS))


def shorten_key(key: RowKey) -> str:
    return encode_key(key).decode()[:_SHOWN_KEY]


def _tally(decoded: Decoded, letters: Sequence[DeadLetter], states: Mapping[str, int]) -> Tally:
    """What the brake decides about; what decoding rejects does not count."""
    failed = [letter for letter in letters if letter.code == UNEXPECTED]
    refused = dict(states) | ({UNEXPECTED: len(failed)} if failed else {})
    rejected = sum(letter.code not in (REFUSED, UNEXPECTED) for letter in letters)
    return Tally(decoded.records - rejected, refused)


def _reasons(letters: Iterable[DeadLetter], messages: Mapping[int, str]) -> Iterator[tuple[DeadLetter, str]]:
    """Refused records with the reason that logs and health may have: the letter's detail has values of the record."""
    for letter in letters:
        if letter.code in (REFUSED, UNEXPECTED):
            yield letter, messages.get(letter.offset, letter.detail)


def _pointer_moved_back(mapping: TableMapping, batch: Slice, found: int, expected: int) -> MovedBackError:
    return MovedBackError(
        f"The pointer of {batch.topic}[{batch.partition}] in pipeline {mapping.pipeline!r} is at {found},"
        f" but {expected} was committed before.",
        hint="The database went back, perhaps to a replica or a backup. Make sure it is the right one, then run"
        ' `inorder pipeline run upsert` again: it replays from the pointer. With `pipeline.on_moved_back = "replay"`'
        " a running job does so by itself.",
    )


@dataclass(slots=True)
class _Isolation:
    """Finds the records that the database refuses, by halving the write inside the one transaction of the slice.

    A refused bulk write says little about which row is at fault, so it is halved until single rows are refused. All
    others are written. Where the store has a quick way to write rows one by one (`SliceTransaction.upsert_each`),
    halving ends at a few dozen: with one bad row in five, nearly every half would be refused down to the last.

    Then each refused row is tried again, after everything else of the slice is written: a row that depends on another
    one passes now. A row that is still refused is split into its records, which are tried one by one in offset order.
    Those that are refused by themselves become dead letters, with the message of the database as the reason.

    Only `RejectedError` counts as a refusal. An error that says that the environment failed propagates, so no dead
    letter is ever written because a disk is full or a server is shutting down.
    """

    transaction: SliceTransaction
    mapping: TableMapping
    batch: Slice
    from_offset: int
    generation: int
    needs_key: NeedsKey = needs_no_key
    most_refused: int | None = None
    written: WriteCounts = field(default_factory=WriteCounts)
    letters: list[DeadLetter] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    """How many letters there are by the database's own code."""
    messages: dict[int, str] = field(default_factory=dict)
    """By the offset of each letter why it was refused, without values of the record."""
    _refused: list[tuple[FoldedRow, RejectedError]] = field(default_factory=list)
    """Rows that are refused by themselves, each with the reason."""

    def write(self, rows: Sequence[FoldedRow]) -> None:
        """Writes what the database accepts; the rest is in `letters` afterwards."""
        self._halve(rows)
        for _ in range(self.mapping.max_attempts - 1):
            if len(self._refused) > _FLOOD:
                break
            again, self._refused = self._refused, []
            for row, _ in again:
                self._try_alone(row)
        for row, reason in self._refused:
            if row.records == 1 and self.mapping.mode == "upsert":
                self._bury(bisect_left(self.batch.offsets, row.offset), reason)
        if several := {row.key for row, _ in self._refused if row.records > 1 or self.mapping.mode != "upsert"}:
            self._split(several)

    def _halve(self, rows: Sequence[FoldedRow]) -> None:
        if len(rows) == 1:
            self._try_alone(rows[0])
        elif rows and self._try(rows) is not None and not (len(rows) <= _FEW and self._write_each(rows)):
            middle = len(rows) // 2
            self._halve(rows[:middle])
            self._halve(rows[middle:])

    def _write_each(self, rows: Sequence[FoldedRow]) -> bool:
        """Writes row by row where the store has a quick way; returns whether it has."""
        results = self.transaction.upsert_each(rows, self.generation)
        if results is None:
            return False
        for row, outcome in zip(rows, results, strict=True):
            if isinstance(outcome, RejectedError):
                self._refuse(row, outcome)
            else:
                self.written += outcome
        return True

    def _try_alone(self, row: FoldedRow) -> None:
        if (reason := self._try([row])) is not None:
            self._refuse(row, reason)

    def _refuse(self, row: FoldedRow, reason: RejectedError) -> None:
        self._refused.append((row, reason))
        if self.most_refused is not None and len(self._refused) > self.most_refused:
            raise _Flood

    def _split(self, keys: set[RowKey]) -> None:
        """Writes every record of these keys by itself, including those that the fold left out."""
        for index, (key, offset, values) in decode_changes(
            keys, self.from_offset, self.mapping, self.batch, self.needs_key
        ):
            if (reason := self._try([FoldedRow(key, values, offset, 1)])) is not None:
                self._bury(index, reason)

    def _bury(self, index: int, reason: RejectedError) -> None:
        self.letters.append(dead_letter(self.batch, index, REFUSED, reason.detail or reason.message))
        self.messages[self.batch.offsets[index]] = reason.message
        self.states[reason.state] += 1

    def _try(self, rows: Sequence[FoldedRow]) -> RejectedError | None:
        """Writes the rows; returns None, or the reason if they are refused."""
        try:
            with self.transaction.savepoint():
                written = self.transaction.upsert(rows, self.generation)
        except RejectedError as error:
            return error
        self.written += written
        return None
