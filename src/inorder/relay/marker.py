"""The marker: which ids were published and may still be in the table.

It travels in the same Kafka transaction as the records that it names, so the last committed marker is always true. The
floor in it is a hint that spares the next owner a walk over dead rows; the ids are authoritative.

A marker may also carry the decision that a row has used up its attempts. The row is moved only after that marker is
committed, and the next owner moves it too, so that an owner that was fenced meanwhile can move nothing. The marker
after that no longer carries the decision: the next owner must not move a row again that an operator has put back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from inorder.kafka.shard_log import Delivery, ShardLog, require_delivered
from inorder.model.errors import ConfigurationError, FencedError, PermanentError
from inorder.model.outbox_row import OutboxRow
from inorder.relay.stores.ports import Exceeding

log = logging.getLogger("inorder.relay")

FENCE_TRIES = 10

Range = tuple[int, int]
"""First and last id, both included."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Ids published and not known to be purged, as ranges, and the floor of the scan that read the newest of them."""

    published: tuple[Range, ...] = ()
    floor: int = 0
    exceeding: Exceeding | None = None

    def ids(self) -> Iterator[int]:
        """Every id, in order of the ranges."""
        for first, last in self.published:
            yield from range(first, last + 1)

    def encode(self) -> bytes:
        """The record's value: short, and readable with any Kafka tool."""
        spans = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.published)
        fields: dict[str, object] = {"published": spans, "floor": self.floor}
        if self.exceeding is not None:
            fields["exceeding"] = asdict(self.exceeding)
        return json.dumps(fields).encode()

    @staticmethod
    def decode(value: bytes | None) -> Marker:
        """The marker of a record; without a record, nothing was ever published."""
        if value is None:
            return Marker()
        try:
            fields = json.loads(value)
            spans = [span.split("-") for span in fields["published"].split(",") if span]
            published = tuple((int(span[0]), int(span[-1])) for span in spans)
            exceeding = Exceeding(**fields["exceeding"]) if "exceeding" in fields else None
            return Marker(published, int(fields["floor"]), exceeding)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PermanentError(
                f"The marker record {value[:80]!r} cannot be read, so it is unknown what was published.",
                hint="Look at the marker topic: a program other than an inorder relay wrote to it.",
            ) from error


def ranges(ids: Iterable[int]) -> tuple[Range, ...]:
    """Ascending ids as ranges of neighbours."""
    found: list[Range] = []
    first = last = None
    for id in ids:
        if last is None or id != last + 1:
            if first is not None and last is not None:
                found.append((first, last))
            first = id
        last = id
    if first is not None and last is not None:
        found.append((first, last))
    return tuple(found)


# Whose ids a marker speaks of: the outbox signs its markers, and a relay of another one refuses to go by them.
#
# Ids are only unique within one table. Two services with the same `relay.group` on one cluster, or a service whose
# tables were made anew, would find a marker that names ids of other rows, and purge their own as published: lost
# without a trace. So each outbox has a random name, kept beside its registration, and every marker carries the name
# of the outbox that it is about. A marker without a name is of an earlier version, and taken at its word.
#
# | what                                       | then |
# |---|---|
# | two outboxes share a group                 | whoever comes second is refused before it purges or sends anything |
# | the tables were dropped and made anew      | refused; `inorder relay reshard --restored` begins anew |
# | the database was restored from a backup    | the name is the same: that it was restored must be said, as ever |

_FIELD = "outbox"


class SigningShardLog:
    """A `ShardLog` around a fenced one; `identity` is asked behind the fence."""

    def __init__(self, log: ShardLog, identity: Callable[[], str], group: str, *, is_restored: bool = False) -> None:
        self._log = log
        self._ask_identity = identity
        self._group = group
        self._is_restored = is_restored
        self._signature = b""

    def take_over(self) -> bytes | None:
        """Takes over; a marker of another outbox is refused, unless this one is said to be restored."""
        marker = self._log.take_over()
        identity = self._ask_identity()
        self._signature = f'{{"{_FIELD}": "{identity}", '.encode()
        found, unsigned = _unsigned(marker)
        if found is not None and found != identity and not self._is_restored:
            raise ConfigurationError(
                f"The markers of relay.group = {self._group!r} are those of another outbox: their ids are not ours.",
                hint="Give each outbox a group of its own. If these tables were made anew, run"
                " `inorder relay reshard --restored`.",
            )
        return unsigned

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        """Publishes, the marker signed."""
        return self._log.publish(rows, self._signature + marker[1:])

    def close(self) -> None:
        """Drops the producer; `take_over` may follow."""
        self._log.close()


def _unsigned(marker: bytes | None) -> tuple[str | None, bytes | None]:
    """Who signed a marker, and the marker itself; what cannot be read is left to whoever decodes it."""
    try:
        fields = json.loads(marker or b"")
        signer = fields.pop(_FIELD, None)
    except (ValueError, AttributeError, TypeError):
        return None, marker
    return signer, json.dumps(fields).encode()


def end_term(open_log: Callable[[], ShardLog]) -> None:
    """Ends the current term of a shard and settles its open transaction, without becoming its owner.

    The fence alone is not enough. An owner that must renew its producers fences back, and continues if the last marker
    is its own (`stores/kafka_log.py`). So the marker is committed again as it is, under our name: then that owner knows
    that it was overtaken. The next owner finds the same marker as before.
    """

    def end() -> None:
        with closing(open_log()) as shard:
            marker = shard.take_over()
            require_delivered(shard.publish((), Marker().encode() if marker is None else marker))

    insist(end)


def insist(act: Callable[[], None]) -> None:
    """Repeats an action that needs a shard's fence, while its owner wins the fence back.

    The owner may win it in a new term, or because it renewed its producers in an old one.
    """
    for tries_left in reversed(range(FENCE_TRIES)):
        try:
            act()
            return
        except FencedError as error:
            if not tries_left:
                raise
            log.info("relay.fenced_again", extra={"error": str(error)})
