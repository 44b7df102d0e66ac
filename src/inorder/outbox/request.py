"""`PublishRequest`, one call of the publisher, and `PendingMessage`, one of its messages on its way to Kafka.

A pending message is `Awaited`, if its request waits for the acknowledgement, or `Queued`, if a callback is called
instead. `SendQueue` sends both and notifies them.
"""

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

log = logging.getLogger("inorder.publisher")

OnDelivery = Callable[[Message, InorderError | None], None]

TOPIC_SECONDS = 5.0
"""How long a request waits for a missing topic: a broker that creates topics itself takes a moment."""
SETTLING_SECONDS = 15.0
"""How long a batch may take to be settled once the request is over: longer than a log needs to give it up."""


class PublishRequest:
    """The messages of one call, by position. Those that a sender has taken are neither sent nor unsent yet.

    ```
    waiting ──take──▶ taken ──arrived──▶ sent
       ▲                │
       └───put_back─────┴──fail(in_doubt)─▶ unsent, in doubt
    ```

    The first failure ends the request: no more of its messages are taken, so that none overtakes the failed one. What
    is not sent by then is unsent.
    """

    def __init__(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        self.messages = messages
        self.records = records
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._sent: set[int] = set()
        self._taken: set[int] = set()
        self._awaited: set[int] = set()
        self._in_doubt: set[int] = set()
        self._failure: InorderError | None = None
        self._refused: int | None = None
        self._late = ""

    @property
    def is_over(self) -> bool:
        return self._failure is not None

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._began

    def take(self, position: int) -> bool:
        """A sender takes a message; returns False if the request is over and the message must not be sent."""
        with self._changed:
            if self._failure is None:
                self._taken.add(position)
            else:
                self._taken.discard(position)
                self._changed.notify_all()
            return self._failure is None

    def put_back(self, position: int) -> None:
        """The message was not sent and will not be."""
        with self._changed:
            self._taken.discard(position)
            self._changed.notify_all()

    def arrived(self, *positions: int) -> None:
        """These messages are acknowledged, or written."""
        with self._changed:
            self._taken.difference_update(positions)
            self._sent.update(positions)
            self._awaited.difference_update(positions)
            # Waking the caller for each message of a long list would take longer than sending them.
            if not self._awaited or self._failure is not None:
                self._changed.notify_all()

    def fail(self, error: InorderError, *, refused: int | None = None, in_doubt: int | None = None) -> None:
        """Ends the request; of several failures the first is reported, and a refusal before all others."""
        with self._changed:
            if self._failure is None or (self._refused is None and refused is not None):
                self._failure, self._refused = error, refused
            if in_doubt is not None:
                self._in_doubt.add(in_doubt)
            self._taken -= {refused, in_doubt}
            self._changed.notify_all()

    def late(self, reason: str) -> None:
        """Records why it takes so long, for the error if it times out."""
        self._late = reason

    def wait(self, positions: Sequence[int], seconds: float) -> None:
        """Returns when these messages are acknowledged; raises `PublishError` if one fails, or after a timeout."""
        with self._changed:
            self._awaited = set(positions) - self._sent
            self._changed.wait_for(lambda: not self._awaited or self.is_over, seconds)
            if self._failure is None and self._awaited:
                self._failure = TransientError(
                    f"Timed out: not acknowledged within {seconds:g} s. {self._late}".strip()
                )
            self._changed.wait_for(lambda: not self._taken, SETTLING_SECONDS)
            if not self._awaited:
                self._failure = None
            else:
                self._in_doubt |= self._taken
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the error that ended the request, if there is one."""
        if self._failure is not None:
            raise self._error(self._failure) from self._failure

    def _error(self, failure: InorderError) -> PublishError:
        sent = [message for position, message in enumerate(self.messages) if position in self._sent]
        unsent = [message for position, message in enumerate(self.messages) if position not in self._sent]
        in_doubt = [self.messages[position] for position in sorted(self._in_doubt - self._sent)]
        text = f"{failure.message} Of {len(self.messages)} messages {len(sent)} were sent, {len(unsent)} were not."
        if self._refused is None:
            hint = failure.hint or "Publish the messages in `unsent` again, later."
            return PublishUnfinishedError(text, hint=hint, sent=sent, unsent=unsent, in_doubt=in_doubt)
        refused = self.messages[self._refused]
        hint = failure.hint or "Fix the message in `refused` or raise the topic's limit; publish `unsent` again."
        return PublishRefusedError(text, hint=hint, sent=sent, unsent=unsent, in_doubt=in_doubt, refused=refused)


class PendingMessage(Protocol):
    """One message in a `SendQueue`. Its methods are called on the queue's thread, without a lock held."""

    @property
    def record(self) -> Record: ...

    @property
    def is_over(self) -> bool:
        """Whether it must not be sent any more."""

    def take(self) -> bool:
        """Whether it is still to be sent; if so, one of `arrived`, `refused` and `left` is called in the end."""

    def arrived(self) -> None:
        """The broker acknowledged it."""

    def refused(self, error: RejectedError) -> None:
        """The broker refused it for its content."""

    def late(self, reason: str) -> None:
        """It is not acknowledged yet, and is retried."""

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:
        """Its topic is unavailable, or it may have arrived; returns whether to retry."""

    def left(self, reason: str, *, in_doubt: bool) -> None:
        """It is not retried any more."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A request waits for it, and ends with the first failure."""

    request: PublishRequest
    position: int

    @property
    def record(self) -> Record:
        return self.request.records[self.position]

    @property
    def is_over(self) -> bool:
        return self.request.is_over

    def take(self) -> bool:
        return self.request.take(self.position)

    def arrived(self) -> None:
        self.request.arrived(self.position)

    def refused(self, error: RejectedError) -> None:
        self.request.fail(error, refused=self.position)

    def late(self, reason: str) -> None:
        self.request.late(reason)

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:
        """Ends the request: only the caller knows whether a repeat does harm. A missing topic may be in creation."""
        if not in_doubt and self.request.age_seconds < TOPIC_SECONDS:
            self.request.late(error.message)
            return True
        self.request.fail(error, in_doubt=self.position if in_doubt else None)
        self.request.put_back(self.position)
        return False

    def left(self, reason: str, *, in_doubt: bool) -> None:
        self.request.put_back(self.position)
        self.request.fail(TransientError(reason), in_doubt=self.position if in_doubt else None)


@dataclass(frozen=True, slots=True)
class Queued:
    """No call waits for it; the callback is called, if there is one. Refusals are logged too."""

    message: Message
    record: Record
    on_delivery: OnDelivery | None

    @property
    def is_over(self) -> bool:
        """It is retried for as long as the publisher is open."""
        return False

    def take(self) -> bool:
        return True

    def arrived(self) -> None:
        if self.on_delivery is not None:
            self._notify(None)

    def refused(self, error: RejectedError) -> None:
        """Logs the reason; later messages of its key continue."""
        log.error("publisher.refused", extra={"topic": self.record.topic, "reason": str(error)})
        mine = (self.message,)
        self._notify(PublishRefusedError(error.message, hint=error.hint, sent=(), unsent=mine, refused=self.message))

    def late(self, reason: str) -> None:
        """Ignored: no call waits."""

    def delayed(self, error: InorderError, *, in_doubt: bool) -> bool:  # noqa: ARG002 - a duplicate is better than a loss
        return True

    def left(self, reason: str, *, in_doubt: bool) -> None:
        mine = (self.message,)
        self._notify(PublishUnfinishedError(reason, sent=(), unsent=mine, in_doubt=mine if in_doubt else ()))

    def _notify(self, error: InorderError | None) -> None:
        if self.on_delivery is None:
            return
        try:
            self.on_delivery(self.message, error)
        except Exception:
            log.exception("publisher.callback_failed", extra={"topic": self.record.topic})
