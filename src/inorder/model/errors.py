"""Every error inorder raises on purpose, in three families that say who must act.

```
InorderError                     code, message, next step
├── ConfigurationError           you fix it; retrying changes nothing          exit 3
│   └── ValidationError          a message was refused before anything was written
├── TransientError               we retry it; it never uses up a record's attempts
│   ├── UnreachableError         a server, a download or Java is not there     exit 4
│   │   └── NotAdmittedError     a server is there and does not let us in
│   ├── TopicUnavailableError    one topic is deleted or closed to us, all others work
│   │   └── TopicSwitchingError  it is closed for a moment, while its next generation is opened
│   ├── FencedError              another instance owns what we thought was ours
│   ├── UnknownOutcomeError      a commit was sent and its answer never came
│   ├── DeadlineError            an answer did not come in the time given for it
│   └── JournalChangedError      a journal was truncated while it was read
└── PermanentError               a record or a state that retrying cannot mend exit 1
    ├── RejectedError            the broker or the store refused this record for its content
    ├── DamagedRecordError       a record of a journal cannot be read
    ├── SeqNrConflictError       a journal does not end where an append expected it to
    ├── SnapshotTooOldError      events behind a snapshot are deleted, so it leads to a hole
    └── GuaranteeError           loss, disorder or a duplicate was seen        exit 5
        └── RecordsLostError     retention removed records before they were replicated
```

`PublishError` stands beside the families: a call of `Publisher` went wrong half-way. Its two leaves,
`PublishRefusedError` and `PublishUnfinishedError`, belong to `PermanentError` and `TransientError` as well.

A leaf carries a stable `code` (listed in docs/errors.md), what happened, and what to do next. Codes are matched by
programs; texts are for people and may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from inorder.model.message import Message


class InorderError(Exception):
    """Root of all errors of inorder; never raised itself."""

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


class ConfigurationError(InorderError):
    """A setting, a file or a call is wrong; the text names the value, the place and the next step."""

    code = "CONFIG-001"
    exit_code = 3


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
    """The environment failed; the same work may succeed later."""

    code = "TRANSIENT-001"


class UnreachableError(TransientError):
    """Something outside that we need is not there: a server, a port, a download, Java, disk space."""

    code = "TRANSIENT-002"
    exit_code = 4


class NotAdmittedError(UnreachableError):
    """A server is there and does not let us in: it refuses the password, or one side the other's certificate."""

    # Transient, because passwords change while services run; a command that starts ends with it.
    code = "TRANSIENT-004"


class TopicUnavailableError(TransientError):
    """One topic cannot be written to: it does not exist, or we have no right to it. Its rows wait, others go on."""

    code = "RELAY-003"

    def __init__(self, topic: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class TopicSwitchingError(TopicUnavailableError):
    """A topic is being switched to its next generation. Its rows wait for a moment, others go on."""

    code = "RELAY-004"


class FencedError(TransientError):
    """The broker gave our shard to another instance; leadership must be won again before anything is sent."""

    code = "RELAY-001"


class UnknownOutcomeError(TransientError):
    """A commit was sent but not answered; only reading back from the authority can tell what happened."""

    code = "RELAY-002"


class PermanentError(InorderError):
    """Retrying cannot mend this."""

    code = "PERMANENT-001"


class RejectedError(PermanentError):
    """The broker or the store refused one record for its content; `row_id` names its outbox row where it is known."""

    code = "RECORD-001"

    def __init__(self, message: str, *, hint: str = "", row_id: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.row_id = row_id


class GuaranteeError(PermanentError):
    """A guarantee did not hold: something was lost, doubled, reordered or moved backwards."""

    code = "GUARANTEE-001"
    exit_code = 5


class PublishError(InorderError):
    """Not all messages of a call were sent: `sent` were, `unsent` are to be published again as they are."""

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
        """Those of `unsent` that may have arrived all the same, because the broker's answer never came."""


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
    """The broker or a topic was away for too long, or the publisher was closed meanwhile."""

    code = "PUBLISH-002"


class DeadlineError(TransientError):
    """An answer did not come in the time given for it."""

    code = "TRANSIENT-003"


class JournalChangedError(TransientError):
    """A journal was truncated or purged while it was read, so what was read may have holes; read it again."""

    code = "JOURNAL-001"


class DamagedRecordError(PermanentError):
    """A record of a journal cannot be read; topic, partition and offset say which."""

    code = "JOURNAL-002"

    def __init__(self, message: str, *, hint: str = "", topic: str, partition: int, offset: int) -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class SeqNrConflictError(PermanentError):
    """A journal ends at `found`, not at `expected`, so somebody else appends to it; None is an empty journal."""

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
    """A journal is deleted up to `delete_to`, beyond the snapshot at `seq_nr`: what lies between is known to nobody."""

    code = "JOURNAL-005"

    def __init__(self, message: str, *, hint: str = "", seq_nr: int, delete_to: int) -> None:
        super().__init__(message, hint=hint)
        self.seq_nr = seq_nr
        self.delete_to = delete_to
