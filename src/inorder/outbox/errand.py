"""A message on its way to Kafka, and whom to tell what became of it: a call that waits, or a callback."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inorder.model.errors import (
    InorderError,
    PublishRefusedError,
    PublishUnfinishedError,
    RejectedError,
    TransientError,
)
from inorder.model.message import Message, Record
from inorder.outbox.call import Call

log = logging.getLogger("inorder.publisher")

TOPIC_SECONDS = 5.0
"""How long a call waits for a topic that is missing: a broker that makes it by itself takes a moment."""

OnDelivery = Callable[[Message, InorderError | None], None]


class Errand(Protocol):
    """One message in a lane. All of it is called from the lane's thread, without a lock being held."""

    @property
    def record(self) -> Record:
        """What is to be sent."""

    @property
    def is_over(self) -> bool:
        """Whether nobody wants it sent any more."""

    def take(self) -> bool:
        """Whether it is still to be sent; if so, one of the following is called in the end."""

    def arrived(self) -> None:
        """It is acknowledged."""

    def refused(self, error: RejectedError) -> None:
        """The broker does not want it, for its content."""

    def late(self, reason: str) -> None:
        """It is not acknowledged yet, and will be tried on."""

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:
        """Its topic is away, or nobody knows whether it arrived; returns whether to try again."""

    def left(self, reason: str, *, in_doubt: bool) -> None:
        """It will not be tried any more."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A call waits for it, and ends with the first failure."""

    call: Call
    position: int

    @property
    def record(self) -> Record:
        """What is to be sent."""
        return self.call.records[self.position]

    @property
    def is_over(self) -> bool:
        """Whether the call has failed."""
        return self.call.is_over

    def take(self) -> bool:
        """Not once the call has failed."""
        return self.call.take(self.position)

    def arrived(self) -> None:
        """One less to wait for."""
        self.call.arrived(self.position)

    def refused(self, error: RejectedError) -> None:
        """Ends the call."""
        self.call.fail(error, refused=self.position)

    def late(self, reason: str) -> None:
        """For the error, if it comes to one."""
        self.call.late(reason)

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:
        """Ends the call: its caller knows better than we do whether a repeat would harm. A topic may be being made."""
        if not in_doubt and self.call.age_seconds < TOPIC_SECONDS:
            self.call.late(error.message)
            return True
        self.call.fail(error, in_doubt=self.position if in_doubt else None)
        self.call.put_back(self.position)
        return False

    def left(self, reason: str, *, in_doubt: bool) -> None:
        """The call has failed, or fails now."""
        self.call.put_back(self.position)
        self.call.fail(TransientError(reason), in_doubt=self.position if in_doubt else None)


@dataclass(frozen=True, slots=True)
class Posted:
    """Nobody waits for it; a callback is told, or the log where there is none."""

    message: Message
    record: Record
    on_delivery: OnDelivery | None

    @property
    def is_over(self) -> bool:
        """It is tried for as long as the publisher lives."""
        return False

    def take(self) -> bool:
        """Always."""
        return True

    def arrived(self) -> None:
        """Tells the callback."""
        if self.on_delivery is not None:
            self._tell(None)

    def refused(self, error: RejectedError) -> None:
        """Tells why; later messages of its key go on."""
        log.error("publisher.refused", extra={"topic": self.record.topic, "reason": str(error)})
        mine = (self.message,)
        self._tell(PublishRefusedError(error.message, hint=error.hint, sent=(), unsent=mine, refused=self.message))

    def late(self, reason: str) -> None:
        """It has time."""

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:  # noqa: ARG002 - a repeat is better than a loss
        """Is sent again."""
        return True

    def left(self, reason: str, *, in_doubt: bool) -> None:
        """Tells that it is still the caller's."""
        mine = (self.message,)
        self._tell(PublishUnfinishedError(reason, sent=(), unsent=mine, in_doubt=mine if in_doubt else ()))

    def _tell(self, error: InorderError | None) -> None:
        if self.on_delivery is None:
            return
        try:
            self.on_delivery(self.message, error)
        except Exception:
            log.exception("publisher.callback_failed", extra={"topic": self.record.topic})
