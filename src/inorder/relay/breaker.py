"""A circuit breaker: stops querying a database that fails, and tries it again after a while.

```
             threshold failures in a row
   closed ──────────────────────────────▶ open ◀───────────────────┐
     ▲                                     │ after open_seconds     │ every attempt failed
     └──────────────── success ──────── half-open ──────────────────┘
```

`BreakerCount` is the state as a value, and its methods are the transitions. `CircuitBreaker` is one in use: it counts
failures of the database, reads included, and nothing else. Failures of the broker do not count.

A whole round of work is one success. With a database that answers reads and refuses writes the breaker would otherwise
never open, because each successful read would cancel the failed write before it.
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
    """What a breaker does with the next query."""

    closed = "closed"
    open = "open"
    half_open = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When it opens, for how long, and how many attempts follow."""

    is_enabled: bool = True
    threshold: int = 3
    open_seconds: float = 600.0
    half_open_attempts: int = 1


@dataclass(frozen=True, slots=True)
class BreakerCount:
    """Failures in a row since the last success, and since when it is open."""

    options: BreakerOptions = BreakerOptions()
    failures: int = 0
    """In a row; while half-open, those since it became half-open."""
    opened_at: float | None = None

    def state(self, now: float) -> BreakerState:
        """Open becomes half-open by the clock alone."""
        if self.opened_at is None:
            return BreakerState.closed
        is_over = now - self.opened_at >= self.options.open_seconds
        return BreakerState.half_open if is_over else BreakerState.open

    def allows(self, now: float) -> bool:
        """Whether the database may be queried."""
        return not self.options.is_enabled or self.state(now) is not BreakerState.open

    def after_success(self) -> BreakerCount:
        """Closed, whatever it was before."""
        return replace(self, failures=0, opened_at=None)

    def after_failure(self, now: float) -> BreakerCount:
        """Counts one more failure; a late one, from before it opened, changes nothing."""
        match self.state(now):
            case BreakerState.open:
                return self
            case BreakerState.closed:
                return self._count(self.options.threshold, now)
            case BreakerState.half_open:
                return self._count(self.options.half_open_attempts, now)

    def _count(self, limit: int, now: float) -> BreakerCount:
        failures = self.failures + 1
        return replace(self, failures=0, opened_at=now) if failures >= limit else replace(self, failures=failures)


class CircuitBreaker:
    """A breaker in use, for one kind of round; `on_change` is called when it opens and when it closes."""

    def __init__(
        self,
        name: str,
        options: BreakerOptions,
        clock: Callable[[], float],
        on_change: Callable[[str, BreakerState], None] = lambda _name, _state: None,
    ) -> None:
        self.name = name
        self._on_change = on_change
        self._breaker = BreakerCount(options)
        self._clock = clock
        self._depth = 0
        self._is_counted = False

    @property
    def state(self) -> BreakerState:
        """Closed, open or half-open at the moment; thread-safe."""
        return self._breaker.state(self._clock())

    def allows(self) -> bool:
        """Whether the database may be queried."""
        return self._breaker.allows(self._clock())

    @contextmanager
    def count_failures(self) -> Iterator[None]:
        """Around queries of the database: counts a failure, once however these are nested, and raises it again."""
        self._depth += 1
        try:
            yield
        except FencedError:
            raise  # the database answered
        except TransientError as error:
            if not self._is_counted:
                self._fail(error)
            self._is_counted = True
            raise
        finally:
            self._depth -= 1
            self._is_counted = self._is_counted and self._depth > 0

    def succeed(self) -> None:
        """A whole round succeeded."""
        was, self._breaker = self._breaker, self._breaker.after_success()
        if was.opened_at is not None:
            log.info("relay.breaker_closed", extra={"breaker": self.name})
            self._on_change(self.name, BreakerState.closed)

    def _fail(self, error: TransientError) -> None:
        if not self._breaker.options.is_enabled:
            return
        now = self._clock()
        was, self._breaker = self._breaker, self._breaker.after_failure(now)
        if self._breaker.opened_at not in (None, was.opened_at):
            seconds = self._breaker.options.open_seconds
            fields = {"breaker": self.name, "open_seconds": seconds, "error": str(error)}
            log.error("relay.breaker_opened", extra=fields)
            self._on_change(self.name, BreakerState.open)
