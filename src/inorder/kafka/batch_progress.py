"""How far a lane of batches has come, as it stands beside the committed offset, and what that means for a batch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from inorder.model.errors import GuaranteeError
from inorder.ports.batch_log import BatchId
from inorder.ports.outbox_store import OutboxRow

_MASK = 2**64 - 1


@dataclass(slots=True)
class Digest:
    """What a part of a batch consists of: how many records, and their keys, in whatever order.

    A batch that is run again brings its rows in any order where there was a shuffle, and perhaps other values, say of
    `uuid()`. Other keys or another number of records mean that rows have gone from one part to another. A record
    without a key is known by its value.
    """

    records: int = 0
    keys: int = 0

    def add(self, rows: Sequence[OutboxRow]) -> None:
        """Counts rows in."""
        self.records += len(rows)
        known = (row.value or b"" if row.key is None else row.key for row in rows)
        self.keys = (self.keys + sum(map(zlib.crc32, known))) & _MASK


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that a lane has committed."""

    batch: BatchId
    digest: Digest

    def to_text(self) -> str:
        """What is kept beside the committed offset, which is the batch's number + 1."""
        return json.dumps({"query": self.batch.query, "records": self.digest.records, "keys": self.digest.keys})


def progress_of(offset: int, text: str | None) -> Progress | None:
    """What was committed; None where there is nothing."""
    if offset <= 0 or not text:
        return None
    kept = json.loads(text)
    return Progress(BatchId(kept["query"], offset - 1), Digest(kept["records"], kept["keys"]))


def is_done(lane: str, committed: Progress | None, batch: BatchId) -> bool:
    """Whether a lane has sent its part of a batch; raises where the two do not belong together.

    Spark runs again the last batch only. So a number further back is a checkpoint that went back, whose later batches
    may hold other rows than before: to skip them would lose rows, and to send them would double some.
    """
    if committed is None:
        return False
    last = committed.batch
    if last.query != batch.query:
        raise GuaranteeError(
            f"{lane!r} belongs to query {last.query}, which has committed batch {last.number};"
            f" this is batch {batch.number} of query {batch.query}.",
            hint="Two queries must not share a name, and a query with a new checkpoint is a new one: give it another.",
        )
    if last.number > batch.number:
        raise GuaranteeError(
            f"{lane!r} has committed batch {last.number}, and now comes batch {batch.number} again.",
            hint="The checkpoint went back. Restore the right one, or begin anew with another checkpoint and name.",
        )
    return last.number == batch.number


def require_same(lane: str, committed: Progress, found: Digest) -> None:
    """Raises where a batch that was sent before has other rows now."""
    before = committed.digest
    if found != before:
        what = f"{before.records} records, and now {found.records}" if found.records != before.records else "other keys"
        raise GuaranteeError(
            f"Batch {committed.batch.number} had {what} in {lane!r}: rows of it may be lost or doubled.",
            hint="Rows of a lane must be in one Spark partition, and the same when a batch is run again: write"
            " inorder.spark.by_key(df, LANES) as the last step, and let nothing random decide about rows and keys.",
        )
