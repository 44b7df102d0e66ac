"""A message on its way to Kafka, and whom to tell what became of it: a call that waits, or a callback."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inorder.model.errors import (
    InorderError,
    PublishError,
    PublishRefusedError,
    PublishUnfinishedError,
    RejectedError,
    TransientError,
)
from inorder.model.message import Message, Record

# One call of the publisher: its messages, and what has become of each.

SETTLING_SECONDS = 15.0
"""How long what is in hand may take to be settled once the call is over: longer than a log needs to give a batch up."""


class PublishRequest:
    """Messages by their position in the call. Those in hand of a sender are neither sent nor unsent yet.

    ```
    waiting ──take──▶ in hand ──arrived──▶ sent
       ▲                 │
       └────put_back─────┴──fail(in_doubt)─▶ unsent, in doubt
    ```

    The first failure ends the call: nothing more of it is taken, so that nothing overtakes what failed. Whatever is
    not sent by then is unsent.
    """

    def __init__(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        self.messages = messages
        self.records = records
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._sent: set[int] = set()
        self._in_hand: set[int] = set()
        self._awaited: set[int] = set()
        self._in_doubt: set[int] = set()
        self._failure: InorderError | None = None
        self._refused: int | None = None
        self._late = ""

    @property
    def is_over(self) -> bool:
        """Whether it failed."""
        return self._failure is not None

    @property
    def age_seconds(self) -> float:
        """How long ago it began."""
        return time.monotonic() - self._began

    def take(self, position: int) -> bool:
        """A sender takes a message in hand; False if the call is over, and then it is not to be sent."""
        with self._changed:
            if self._failure is None:
                self._in_hand.add(position)
            else:
                self._in_hand.discard(position)
                self._changed.notify_all()
            return self._failure is None

    def put_back(self, position: int) -> None:
        """It was not sent and will not be."""
        with self._changed:
            self._in_hand.discard(position)
            self._changed.notify_all()

    def arrived(self, *positions: int) -> None:
        """These are where they should be."""
        with self._changed:
            self._in_hand.difference_update(positions)
            self._sent.update(positions)
            self._awaited.difference_update(positions)
            # Waking the caller for each message of a long call would take longer than sending them.
            if not self._awaited or self._failure is not None:
                self._changed.notify_all()

    def fail(self, error: InorderError, *, refused: int | None = None, in_doubt: int | None = None) -> None:
        """Ends the call; of several failures the first one is told, and a refusal before all others."""
        with self._changed:
            if self._failure is None or (self._refused is None and refused is not None):
                self._failure, self._refused = error, refused
            if in_doubt is not None:
                self._in_doubt.add(in_doubt)
            self._in_hand -= {refused, in_doubt}
            self._changed.notify_all()

    def late(self, reason: str) -> None:
        """Why it takes so long; told if the time runs out."""
        self._late = reason

    def wait(self, positions: Sequence[int], seconds: float) -> None:
        """Returns when these have arrived; raises `PublishError` when one cannot, or the time is over."""
        with self._changed:
            self._awaited = set(positions) - self._sent
            self._changed.wait_for(lambda: not self._awaited or self.is_over, seconds)
            if self._failure is None and self._awaited:
                self._failure = TransientError(f"Not acknowledged within {seconds:g} s. {self._late}".strip())
            self._changed.wait_for(lambda: not self._in_hand, SETTLING_SECONDS)
            if not self._awaited:
                self._failure = None
            else:
                self._in_doubt |= self._in_hand
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises what ended the call, if something did."""
        if self._failure is not None:
            raise self._error(self._failure) from self._failure

    def _error(self, failure: InorderError) -> PublishError:
        sent = [message for position, message in enumerate(self.messages) if position in self._sent]
        unsent = [message for position, message in enumerate(self.messages) if position not in self._sent]
        in_doubt = [self.messages[position] for position in sorted(self._in_doubt - self._sent)]
        text = f"{failure.message} Of {len(self.messages)} messages {len(sent)} were sent, {len(unsent)} were not."
        if self._refused is None:
            hint = failure.hint or "Publish what is in `unsent` again, later."
            return PublishUnfinishedError(text, hint=hint, sent=sent, unsent=unsent, in_doubt=in_doubt)
        refused = self.messages[self._refused]
        hint = failure.hint or "Mend the message in `refused` or raise the topic's limit; publish `unsent` again."
        return PublishRefusedError(text, hint=hint, sent=sent, unsent=unsent, in_doubt=in_doubt, refused=refused)


log = logging.getLogger("inorder.publisher")

TOPIC_SECONDS = 5.0
"""How long a call waits for a topic that is missing: a broker that makes it by itself takes a moment."""

OnDelivery = Callable[[Message, InorderError | None], None]


class PendingMessage(Protocol):
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
class Awaited:
    """A call waits for it, and ends with the first failure."""

    call: PublishRequest
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
class Queued:
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
