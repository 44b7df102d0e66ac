"""The nouns of the journal: keys, sequence numbers, events, and where in the log they stand."""

from inorder.model.journal.event import Event, EventRecord, Json, Payload, PayloadMetadata, PayloadType, RecordMetadata
from inorder.model.journal.key import Key
from inorder.model.journal.position import PartitionOffset
from inorder.model.journal.seq_nr import MAX_SEQ_NR, MIN_SEQ_NR, DeleteTo, SeqNr, SeqRange
from inorder.model.journal.snapshot import ANY_SNAPSHOT, Snapshot, SnapshotCriteria

__all__ = [
    "ANY_SNAPSHOT",
    "MAX_SEQ_NR",
    "MIN_SEQ_NR",
    "DeleteTo",
    "Event",
    "EventRecord",
    "Json",
    "Key",
    "PartitionOffset",
    "Payload",
    "PayloadMetadata",
    "PayloadType",
    "RecordMetadata",
    "SeqNr",
    "SeqRange",
    "Snapshot",
    "SnapshotCriteria",
]
