"""Whether a partition has a newer record of a key: the topic is asked, because the table cannot always tell.

A record that changes nothing leaves no trace in the table (`slice.py`, identical writes). So a row whose version is
below a dead letter's may still have had a newer record, and only the topic remembers it. What the topic no longer
holds is not known, and then nothing is claimed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from inorder.model.errors import GuaranteeError, TransientError
from inorder.pipeline.keys import encoded_key
from inorder.pipeline.upsert import Decoded, Ignored, Rejected
from inorder.ports.partition_reader import PartitionReader, Place, TopicSource
from inorder.ports.slice_work import Slice
from inorder.ports.table_store import RowKey

CHUNK = 10_000
PATIENCE_SECONDS = 20.0
"""How long the topic may be silent; shorter than a database lets an idle transaction hold its lock."""

Decode = Callable[[bytes | None, bytes | None], Decoded]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The topic no longer holds what would tell."""

    reason: str


class NewerRecords:
    """The records of one partition from an offset on, read as far as somebody asks and never twice.

    `keys` are the row keys that will be asked for, by the Kafka key of their dead letter. A record that the mapping
    of today rejects may have been applied by an older one, so its Kafka key alone makes it count; without a Kafka key
    it counts for every row.
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
        self._record_keys = {None, *keys, *map(encoded_key, self._keys)}
        self._next = start
        self._seen: defaultdict[RowKey, list[int]] = defaultdict(list)

    def after(self, key: RowKey, offset: int, end: int, *, apart_from: Collection[int]) -> int | Unknown | None:
        """The first record of a key behind an offset and before the end; None where there is none.

        `apart_from` are offsets of records that are known to be in no table.
        """
        if (unknown := self.read_to(end)) is not None:
            return unknown
        return next((at for at in self._seen[key] if offset < at < end and at not in apart_from), None)

    def read_to(self, end: int) -> Unknown | None:
        """Reads all records before the end that were not read yet."""
        if self._next >= end:
            return None
        topic, partition = self._place
        extent = (self._source.extents(topic) or {}).get(partition)
        if extent is None or extent.first > self._next or extent.end < end:
            held = "is not there" if extent is None else f"holds offsets {extent.first} to {extent.end - 1}"
            needed = f"{self._next} to {end - 1}"
            return Unknown(f"{topic}[{partition}] {held}; {needed} tell whether a newer record of the key came.")
        try:
            # A new reader each time: an end that it tells is then one that was reached behind the end asked for.
            with closing(self._source.open({self._place: self._next}, tells_ends=True)) as reader:
                self._read_on(reader, end)
        except GuaranteeError as error:
            return Unknown(error.message)
        return None

    def _read_on(self, reader: PartitionReader, end: int) -> None:
        patience = time.monotonic() + PATIENCE_SECONDS
        while self._next < end:
            slices, ended = reader.read(CHUNK, 0.2)
            for batch in slices:
                self._note(batch)
                patience = time.monotonic() + PATIENCE_SECONDS
            # Where the last offsets are no records (transaction markers, compaction), the end is told instead.
            if self._place in ended:
                self._next = max(self._next, end)
            if time.monotonic() > patience:
                topic, partition = self._place
                raise TransientError(f"{topic}[{partition}] gave no record for {PATIENCE_SECONDS:.0f} s.")

    def _note(self, batch: Slice) -> None:
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
            if key in self._record_keys:
                for row in self._rows(key, value):
                    self._seen[row].append(offset)
        self._next = max(self._next, batch.next_offset)

    def _rows(self, key: bytes | None, value: bytes | None) -> Iterable[RowKey]:
        """The rows that a record may have written, of those that will be asked for."""
        match self._decode(key, value):
            case Ignored():
                return ()
            case Rejected():
                return self._keys if key is None else self._by_kafka_key.get(key, ())
            case decoded:
                return (decoded.key,) if decoded.key in self._keys else ()
