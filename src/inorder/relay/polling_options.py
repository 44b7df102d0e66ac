"""What a polling relay is told, and what it works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inorder.ports.outbox_store import OutboxStore
from inorder.ports.polling_store import PollingStore
from inorder.relay.breaker import BreakerOptions
from inorder.relay.parking import Policy


@dataclass(frozen=True, slots=True)
class PollingOptions:
    """How a polling relay works; all times in seconds."""

    batch_size: int = 5000
    missing_batch_size: int = 500
    keep_order: bool = True
    queue_wait: float = 0.1
    missing_wait: float = 20.0
    missing_max_retries: int = 5
    broker_max_retries: int = 5
    redelivery_delay: float = 0.25
    look_wait: float = 1.0
    """Between looks whether somebody released a parked key, while there is one."""
    policy: Callable[[str], Policy] = lambda _topic: "park"
    breaker: BreakerOptions = BreakerOptions()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True, slots=True)
class PollingTables:
    """The database: rows are read from `reader`, which may lag; what is final is asked of `primary`."""

    reader: OutboxStore
    primary: OutboxStore
    store: PollingStore
