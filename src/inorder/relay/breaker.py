"""A circuit breaker in use (`model/breaker.py`): it counts failures of the database, reads included, and nothing else.

Failures of the broker do not count.

A whole round of work is one success. With a database that answers reads and refuses writes the breaker would otherwise
never open, because each successful read would cancel the failed write before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inorder.model.breaker import BreakerCount, BreakerOptions, BreakerState
from inorder.model.errors import FencedError, TransientError

log = logging.getLogger("inorder.relay")


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
