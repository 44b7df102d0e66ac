"""The contract of a shard log: where the batches of one shard go, and what is known of a batch afterwards.

Two kinds keep it. The **fenced** log (`relay/stores/kafka_log.py`, delivery `exactly-once`) publishes a batch in a
transaction, all or nothing, with a marker that the next owner finds. The **unfenced** log
(`kafka/idempotent_producer.py`, delivery `at-least-once`) has no marker to return, stops no other owner, and may
deliver part of a batch. Both keep the order of each key: while a row is not delivered, no later row of its key is.

`publish` *returns* what became of the batch as long as its caller can continue with the same log: all rows were
delivered, or some were and an error says why the others were not. The caller has to look at both parts, so both are in
the value. It *raises* `FencedError` and `UnknownOutcomeError`, because no caller can continue after them: everything up
to the loop that owns the shard must end before `take_over` may be called, and the rows in hand are void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from inorder.model.errors import RejectedError, TransientError
from inorder.model.message import OutboxRow


@dataclass(frozen=True, slots=True)
class Delivered:
    """All rows are acknowledged, and with a fenced log their transaction is committed."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Not all rows are acknowledged.

    The `delivered` ones must not be sent again. The others must be, in order, before any later row of their keys,
    except a row that a `RejectedError` names. A `TopicUnavailableError` is about one topic and comes within a few
    seconds: rows of other topics can be published at once, its own when it is back.
    """

    error: RejectedError | TransientError
    delivered: frozenset[int] = frozenset()
    """Ids of rows that arrived all the same; always empty with a fenced log."""
    in_doubt: frozenset[int] = frozenset()
    """Ids of other rows that may have arrived, because the broker's answer never came."""
    is_under_way: bool = False
    """Whether the batch was sent and not given up: publishing the same rows again continues to wait for it."""


Delivery: TypeAlias = Delivered | Incomplete


class Abandoned(NamedTuple):
    """What is known of a batch that was given up while it was under way; see `Incomplete`."""

    delivered: frozenset[int] = frozenset()
    in_doubt: frozenset[int] = frozenset()


class ShardLog(Protocol):
    """Publishes the batches of one shard, one after the other."""

    def take_over(self) -> bytes | None:
        """Makes this the owner; returns the last committed marker, or None where there is none.

        Called once before the first `publish` and again after `FencedError`, `UnknownOutcomeError` or `close`. A fenced
        log stops every earlier owner and ends its open transaction first. Raises `UnreachableError` when it needs the
        broker and cannot reach it in time.
        """

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Sends the rows in order, with the marker where the log keeps one, and waits until they are acknowledged.

        Raises `FencedError` if another owner took over: nothing of the batch is visible. Raises `UnknownOutcomeError`
        if only `take_over` can tell what happened.
        """

    def close(self) -> None:
        """Drops the producer, which sends nothing more; may be called twice, and `take_over` may follow."""


class UnfencedLog(ShardLog, Protocol):
    """A shard log whose batch may still be under way when `publish` returns."""

    def give_up(self) -> Abandoned:
        """Drops the batch that is under way, if there is one."""


def require_delivered(delivery: Delivery) -> None:
    """Raises the error of an incomplete delivery, for callers that cannot do anything about it."""
    match delivery:
        case Incomplete(error):
            raise error
        case Delivered():
            return
