"""Every error inorder raises on purpose, in three families that say who must act.

```
InorderError                     code, message, next step
├── ConfigurationError           you fix it; retrying changes nothing          exit 3
│   └── ValidationError          a message was refused before anything was written
├── TransientError               we retry it; it never uses up a record's attempts
│   ├── UnreachableError         a server, a download or Java is missing       exit 4
│   │   ├── AuthenticationError  a server refuses the login or a certificate
│   │   └── ReadOnlyServerError  a database answers and accepts no writes: a failover is under way
│   ├── TopicUnavailableError    one topic is deleted or access is denied, all others work
│   │   ├── TopicSwitchingError  it is closed briefly, while its next generation is opened
│   │   └── TopicPausedError     an operator has paused it
│   ├── KeyPausedError           an operator has paused some keys, all others work
│   ├── FencedError              another instance took over this instance's shard
│   ├── UnknownOutcomeError      a commit was sent and its response was lost
│   ├── DeadlineError            an operation timed out
│   ├── LockConflictError        a deadlock, or a lock that was not granted in time; the transaction may run again
│   ├── MassRefusalError         a table refuses most records of a partition, which waits
│   ├── JournalChangedError      a journal was truncated while it was read
│   │   └── ShreddedError        it was purged, and the key of its events is destroyed
│   └── UpdateConflictError      other writers changed a journal during every attempt to update it
└── PermanentError               a record or a state that retrying cannot fix  exit 1
    ├── RejectedError            the broker or the store refused this record for its content
    ├── DamagedRecordError       a record of a journal cannot be read
    ├── SeqNrConflictError       a journal does not end where an append expected it to
    ├── SnapshotTooOldError      events that follow a snapshot are deleted
    ├── EventTypeError           an event has a type or version that this program does not know
    └── GuaranteeError           loss, disorder or a duplicate was seen        exit 5
        ├── MovedBackError       the database went back to before a commit that was seen
        ├── OtherTopicError      a topic is not the one that the pointers belong to
        └── RecordsLostError     retention removed records before they were replicated
```

`PublishError` is outside the families: a call of `Publisher` sent some of its messages and not all. Its two leaves,
`PublishRefusedError` and `PublishUnfinishedError`, belong to `PermanentError` and `TransientError` as well.

An error carries a stable `code` (listed in docs/errors.md), a message that says what happened, and a hint that says
what to do next. Programs match codes; texts are for people and may change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from inorder.model.message import Message


class InorderError(Exception):
    """Base class of all errors of inorder; never raised itself."""

    code: ClassVar[str] = "INORDER-000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive pickling by default, and Spark ships errors between processes.
        return (_rebuild, (type(self), self.__dict__.copy()))

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def _rebuild(kind: type[InorderError], attributes: dict[str, object]) -> InorderError:
    error = kind.__new__(kind, attributes["message"], attributes["hint"])
    error.args = (attributes["message"], attributes["hint"])
    error.__dict__.update(attributes)
    return error


def last_line(error: BaseException) -> str:
    """The last line of an error's traceback, as short as a reason may be."""
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    return text if len(text) <= _LINE_CHARACTERS else f"{text[:_LINE_CHARACTERS]}…"


_LINE_CHARACTERS = 300


def is_same_failure(before: str, now: str) -> bool:
    """The Kafka client reports how many milliseconds an attempt took, which does not make it another failure."""
    return _NUMBER.sub("", before) == _NUMBER.sub("", now)


_NUMBER = re.compile(r"\d+")


def is_worth_logging(repeated: int) -> bool:
    """Ever less often: the first time, then after 1, 2, 4, 8, … repetitions of the same failure."""
    return repeated & (repeated - 1) == 0


class ConfigurationError(InorderError):
    """A setting, a file or a call is wrong; the text names the value, the place and the next step."""

    code = "CONFIG-001"
    exit_code = 3
    is_of_target = False
    """Whether a table that a pipeline fills is at fault, and so only this table must wait."""


class ValidationError(ConfigurationError):
    """A message was refused before anything was written; `field` says which part of it.

    `rule` is the code of the dead letter that the message would have become, where a pipeline's rules refused it.
    """

    code = "MESSAGE-001"

    def __init__(self, field: str, message: str, *, hint: str = "", rule: str = "") -> None:
        super().__init__(f"{field}: {message}", hint=hint)
        self.field = field
        self.rule = rule


class TransientError(InorderError):
    """The environment failed; the same operation may succeed later."""

    code = "TRANSIENT-001"


class UnreachableError(TransientError):
    """Something that inorder needs is missing or does not answer: a server, a port, a download, Java, disk space."""

    code = "TRANSIENT-002"
    exit_code = 4


class AuthenticationError(UnreachableError):
    """Authentication failed: the server refuses the login, or one side refuses the other's certificate."""

    # Transient, because passwords change while services run; a command that starts ends with it.
    code = "TRANSIENT-004"


class ReadOnlyServerError(UnreachableError):
    """The server of a database is read-only, so it is not the primary: another connection is opened."""

    code = "TRANSIENT-005"


class TopicUnavailableError(TransientError):
    """One topic cannot be written to: it does not exist, or access is denied. Its rows wait; other topics continue."""

    code = "RELAY-003"

    def __init__(self, topic: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class TopicSwitchingError(TopicUnavailableError):
    """A topic is being switched to its next generation. Its rows wait briefly; other topics continue."""

    code = "RELAY-004"


class TopicPausedError(TopicUnavailableError):
    """An operator has paused a topic. Its rows wait until `inorder resume`; other topics continue."""

    code = "RELAY-005"


class KeyPausedError(TransientError):
    """An operator has paused keys of this batch. Their rows wait until `inorder resume`; other keys continue."""

    code = "RELAY-006"

    def __init__(self, keys: frozenset[tuple[str, bytes]], message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.keys = keys


class FencedError(TransientError):
    """The broker fenced this instance: another one owns the shard, and leadership must be won again before sending."""

    code = "RELAY-001"


class UnknownOutcomeError(TransientError):
    """A commit was sent but not answered; only the authority itself shows whether it happened."""

    code = "RELAY-002"


class PermanentError(InorderError):
    """Retrying cannot fix this: a record or a state is wrong."""

    code = "PERMANENT-001"


class RejectedError(PermanentError):
    """The broker or the store refused one record for its content; `row_id` names its outbox row where it is known."""

    code = "RECORD-001"

    state: str = ""
    """The database's own code of the refusal, where it has one."""
    detail: str = ""
    """What the database said in full, with values of the record: for its dead letter, never for a log."""

    def __init__(self, message: str, *, hint: str = "", row_id: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.row_id = row_id


class GuaranteeError(PermanentError):
    """A guarantee was violated: something was lost, duplicated, reordered or moved backwards."""

    code = "GUARANTEE-001"
    exit_code = 5
    place: tuple[str, int] | None = None
    """The topic and partition where it was seen; a job goes on with its other partitions."""


class MovedBackError(GuaranteeError):
    """A pointer is lower than one that was seen committed: the database went back, perhaps to a replica or a backup."""

    code = "GUARANTEE-002"


class OtherTopicError(GuaranteeError):
    """A Kafka topic was deleted and re-created, or a mapping names another one: offsets of the two do not compare."""

    code = "GUARANTEE-003"


class PublishError(InorderError):
    """Not all messages of a call were sent: publish the messages in `unsent` again, those in `sent` are done."""

    code = "PUBLISH-000"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        sent: Sequence[Message],
        unsent: Sequence[Message],
        in_doubt: Sequence[Message] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.sent = tuple(sent)
        self.unsent = tuple(unsent)
        self.in_doubt = tuple(in_doubt)
        """Those of `unsent` that may have been delivered, because the broker's response was lost."""


class PublishRefusedError(PublishError, PermanentError):
    """The broker refused a message for its content; `refused` is that one, the first of its key in `unsent`."""

    code = "PUBLISH-001"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        sent: Sequence[Message],
        unsent: Sequence[Message],
        in_doubt: Sequence[Message] = (),
        refused: Message,
    ) -> None:
        super().__init__(message, hint=hint, sent=sent, unsent=unsent, in_doubt=in_doubt)
        self.refused = refused


class PublishUnfinishedError(PublishError, TransientError):
    """The broker or a topic was unavailable for too long, or the publisher was closed meanwhile."""

    code = "PUBLISH-002"


class DeadlineError(TransientError):
    """An operation timed out."""

    code = "TRANSIENT-003"


class LockConflictError(TransientError):
    """The database rolled a transaction back for a deadlock, or did not grant a lock in time; it may be run again."""

    code = "TRANSIENT-006"


class MassRefusalError(TransientError):
    """A table cannot be written, or refuses most records of a partition with one code: the partition waits."""

    code = "PIPELINE-001"
    place: tuple[str, int] | None = None
    """The topic and partition that waits; a job goes on with its other partitions."""
    offset = 0
    """Where it waits: the records below it may be applied."""
    is_certain = False
    """Whether enough records are refused to tell; else more are waited for, briefly."""


class JournalChangedError(TransientError):
    """A journal was truncated or purged while it was read, so the result may have gaps; read it again."""

    code = "JOURNAL-001"


class ShreddedError(JournalChangedError):
    """The journal was purged while it was read, and the key of its events is destroyed; read it again."""

    code = "JOURNAL-012"


class UpdateConflictError(TransientError):
    """Other writers changed a journal during each of `attempts` attempts to update its entity; nothing was appended."""

    code = "JOURNAL-010"

    def __init__(self, message: str, *, hint: str = "", attempts: int) -> None:
        super().__init__(message, hint=hint)
        self.attempts = attempts


class DamagedRecordError(PermanentError):
    """A record of a journal cannot be read; topic, partition and offset say which."""

    code = "JOURNAL-002"

    def __init__(self, message: str, *, hint: str = "", topic: str, partition: int, offset: int) -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SeqNrConflictError(PermanentError):
    """A journal ends at `found`, not at `expected`: another writer appends to it. None is an empty journal."""

    code = "JOURNAL-003"

    def __init__(self, message: str, *, hint: str = "", expected: int | None, found: int | None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.found = found


class RecordsLostError(GuaranteeError):
    """Retention removed records of a partition before they were replicated: those from `wanted` to below `first`."""

    code = "JOURNAL-004"

    def __init__(self, message: str, *, hint: str = "", wanted: int, first: int) -> None:
        super().__init__(message, hint=hint)
        self.wanted = wanted
        self.first = first


class SnapshotTooOldError(PermanentError):
    """A journal is deleted up to `delete_to`, beyond the snapshot at `seq_nr`: the events in between are lost."""

    code = "JOURNAL-005"

    def __init__(self, message: str, *, hint: str = "", seq_nr: int, delete_to: int) -> None:
        super().__init__(message, hint=hint)
        self.seq_nr = seq_nr
        self.delete_to = delete_to


class EventTypeError(PermanentError):
    """An event has a type or a version that this program does not know, or data that does not fit them."""

    code = "JOURNAL-011"

    def __init__(
        self, message: str, *, hint: str = "", event_type: str | None, version: int | None, journal: str, seq_nr: int
    ) -> None:
        super().__init__(message, hint=hint)
        self.event_type = event_type
        self.version = version
        self.journal = journal
        self.seq_nr = seq_nr
