"""A circuit breaker: stops asking a database that fails, and tries it again after a while.

```
             threshold failures in a row
   closed ──────────────────────────────▶ open ◀───────────────────┐
     ▲                                     │ after open_seconds     │ every attempt failed
     └──────────────── success ──────── half-open ──────────────────┘
```

`Breaker` is the state as a value, and its methods are the transitions. `Guard` is one in use: it counts failures of
the database, reads included, and nothing else. Trouble with the broker is not its business.

A whole round of work is one success. A database that answers reads and refuses writes would otherwise never be left
alone, because each read would make up for the failed write before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from inorder.model.errors import FencedError, TransientError

log = logging.getLogger("inorder.relay")


class BreakerState(StrEnum):
    """What a breaker does with the next question."""

    closed = "closed"
    open = "open"
    half_open = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When it opens, for how long, and how often it tries then."""

    is_enabled: bool = True
    threshold: int = 3
    open_seconds: float = 600.0
    half_open_attempts: int = 1


@dataclass(frozen=True, slots=True)
class BreakerCount:
    """Failures in a row since the last success, and since when it is open."""

    options: BreakerOptions = BreakerOptions()
    failures: int = 0
    """In a row; while half-open, those of this half-open time."""
    opened_at: float | None = None

    def state(self, now: float) -> BreakerState:
        """Open becomes half-open by the clock alone."""
        if self.opened_at is None:
            return BreakerState.closed
        is_over = now - self.opened_at >= self.options.open_seconds
        return BreakerState.half_open if is_over else BreakerState.open

    def allows(self, now: float) -> bool:
        """Whether the database may be asked."""
        return not self.options.is_enabled or self.state(now) is not BreakerState.open

    def succeeded(self) -> BreakerCount:
        """After a success: closed, whatever was before."""
        return replace(self, failures=0, opened_at=None)

    def failed(self, now: float) -> BreakerCount:
        """After one more failure; one that comes late, out of a time before it opened, changes nothing."""
        match self.state(now):
            case BreakerState.open:
                return self
            case BreakerState.closed:
                return self._counted(self.options.threshold, now)
            case BreakerState.half_open:
                return self._counted(self.options.half_open_attempts, now)

    def _counted(self, limit: int, now: float) -> BreakerCount:
        failures = self.failures + 1
        return replace(self, failures=0, opened_at=now) if failures >= limit else replace(self, failures=failures)


class CircuitBreaker:
    """A breaker in use, for one daemon."""

    def __init__(
        self,
        name: str,
        options: BreakerOptions,
        clock: Callable[[], float],
        on_change: Callable[[str, BreakerState], None] = lambda _name, _state: None,
    ) -> None:
        """`on_change` is told when it opens and when it closes."""
        self.name = name
        self._on_change = on_change
        self._breaker = BreakerCount(options)
        self._clock = clock

    @property
    def state(self) -> BreakerState:
        """Closed, open or half-open, now; any thread may ask."""
        return self._breaker.state(self._clock())

    def allows(self) -> bool:
        """Whether the daemon may ask its database."""
        return self._breaker.allows(self._clock())

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around questions to the database: a failure is counted and goes on its way."""
        try:
            yield
        except FencedError:
            raise  # the database answered
        except TransientError as error:
            self._fail(error)
            raise

    def succeed(self) -> None:
        """A round of the daemon went through."""
        was, self._breaker = self._breaker, self._breaker.succeeded()
        if was.opened_at is not None:
            log.info("relay.breaker_closed", extra={"breaker": self.name})
            self._on_change(self.name, BreakerState.closed)

    def _fail(self, error: TransientError) -> None:
        if not self._breaker.options.is_enabled:
            return
        now = self._clock()
        was, self._breaker = self._breaker, self._breaker.failed(now)
        if self._breaker.opened_at not in (None, was.opened_at):
            seconds = self._breaker.options.open_seconds
            log.error("relay.breaker_opened: %s", error, extra={"breaker": self.name, "open_seconds": seconds})
            self._on_change(self.name, BreakerState.open)
