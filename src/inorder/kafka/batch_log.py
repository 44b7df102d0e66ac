"""Batches of an engine that may run them again, written to Kafka exactly once: what the sink `inorder.kafka` does.

An engine such as Spark cuts its input into batches and runs parts of them as tasks. It runs a task again when it fails,
and the whole last batch when the driver does. A *lane* is a number that each row carries. The rows of a lane are one
part of each batch, and are sent by one task.

A row's lane comes from the row, and not from the task that has it: Spark numbers its tasks anew when it runs a batch
again. Its Kafka source, for one, lists partitions in another order when it finds them in a checkpoint.

**What is authoritative.** The offset that the lane's group has committed: the number of its last batch + 1. It is
committed in the transaction that carries the records. So a part is in Kafka if and only if its number is committed. The
offset needs a topic to stand for; that is partition 0 of `inorder.spark`, in which there is never a record.

**The fence.** Each lane has a transactional id, `inorder.spark.<name>.<lane>`. Whoever begins on a part takes it: the
broker ends what an earlier attempt left open, and refuses whatever that one sends from then on. The number is asked for
behind the fence, so it cannot move under its holder.

**Order.** Records of a part are sent in their order, by one producer. The engine begins a batch when the one before is
done. So a key is in order if all its rows of a batch are in one lane, and in order there.

**What must hold of the engine.** The rows of a lane are in one task. A batch that is run again has the same rows, with
the same lanes. Spark's plans see to that if they are deterministic, since the extent of a batch is in the checkpoint.
Whether it holds is checked as far as it can be seen: the number of records and the sum of their keys' checksums (of
their values, where they have no key) are committed beside the number. A lane in two tasks shows in the same way: the
second one finds the number committed, with other rows.

Without a batch's number (a batch write without a name) a part is one transaction, and that is all: whoever runs the job
again sends everything again.

Failure table:

| what happens                              | what follows                                                          |
|-------------------------------------------|-----------------------------------------------------------------------|
| task killed before its commit             | the next attempt's fence aborts what is open; it sends the part       |
| task killed after its commit              | the next attempt finds the number committed, and sends nothing        |
| commit sent, answer lost                  | the attempt fails; the next one asks behind its fence                 |
| driver killed in mid-batch                | Spark runs the batch again: parts that are committed are skipped      |
| paused task, or a speculative one beside  | the later one fences the other, which can commit nothing              |
| rows come again with other lanes          | `GuaranteeError` from a lane that is committed and has other rows now |
| a lane is in two tasks                    | `GuaranteeError`, or they fence each other until one is through       |
| the checkpoint is lost                    | `GuaranteeError`: the name belongs to the query of that checkpoint    |
| the checkpoint went back                  | `GuaranteeError`: a later batch is committed                          |
| two queries with one name                 | `GuaranteeError` for the second                                       |
| the broker refuses a record               | `RejectedError`; nothing of its part is visible to `read_committed`   |
| stopped in mid-batch for longer than the  | the broker has forgotten the number (`offsets.retention.minutes`, a   |
| broker keeps offsets                      | week by default): what the last batch had committed is sent again     |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from inorder.kafka.batch_part import BatchPart
from inorder.kafka.batch_progress import Digest, Progress, is_done, require_same
from inorder.model.partition import Partitioner
from inorder.ports.batch_log import BatchId, Part, Sent
from inorder.ports.outbox_store import OutboxRow


@dataclass(frozen=True, slots=True)
class KafkaBatchLog:
    """The lanes of one name."""

    properties: tuple[tuple[str, object], ...]
    name: str
    partitioners: tuple[tuple[str, Partitioner], ...] = ()
    """Of topics that are not partitioned by murmur2."""

    def open(self, lane: int, batch: BatchId | None, topics: Collection[str]) -> Part:
        """Takes the lane, and finds out whether its part of the batch was sent before."""
        name = f"inorder.spark.{self.name}.{lane}"
        part = BatchPart(dict(self.properties), name, topics, dict(self.partitioners), batch)
        if batch is None:
            return part
        committed = part.progress()
        if committed is not None and is_done(name, committed, batch):
            return _Replayed(name, committed)
        return part


class _Replayed:
    """A part that was sent before; its rows are counted, and must be the same."""

    def __init__(self, name: str, committed: Progress) -> None:
        self._name = name
        self._committed = committed
        self._digest = Digest()

    def add(self, rows: Sequence[OutboxRow]) -> None:
        self._digest.add(rows)

    def commit(self) -> Sent:
        require_same(self._name, self._committed, self._digest)
        return Sent(self._digest.records, is_replayed=True)

    def abort(self) -> None:
        """Nothing is open."""
