"""One call of the publisher: its messages, and what has become of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from inorder.model.errors import InorderError, PublishError, PublishRefusedError, PublishUnfinishedError, TransientError
from inorder.model.message import Message, Record

SETTLING_SECONDS = 15.0
"""How long what is in hand may take to be settled once the call is over: longer than a log needs to give a batch up."""


class Call:
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
