"""A circuit breaker as a value: stops querying a database that fails, and tries it again after a while.

```
             threshold failures in a row
   closed ──────────────────────────────▶ open ◀───────────────────┐
     ▲                                     │ after open_seconds     │ every attempt failed
     └──────────────── success ──────── half-open ──────────────────┘
```

`BreakerCount` is the state, and its methods are the transitions. Who uses one decides what counts as a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


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
