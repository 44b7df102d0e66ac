"""The marker: which ids were published and may still be in the table.

It travels in the same Kafka transaction as the records that it names, so the last committed marker is always true. The
floor in it is a hint that spares the next owner a walk over dead rows; the ids are authoritative.

A marker may also carry the decision that a row has used up its attempts. The row is moved only after that marker is
committed, and the next owner moves it too, so that an owner that was fenced meanwhile can move nothing. The marker
after that no longer carries the decision: the next owner must not move a row again that an operator has put back.

**Whose ids these are.** Ids are unique within one table only. Two services with the same `relay.group` on one cluster,
or a service whose tables were created anew, would find a marker with ids of other rows, and purge their own rows as
published: lost without a trace. So each outbox has a random name, kept beside its registration, and every marker
carries the name of its outbox. A marker without a name is of an earlier version, and accepted.

| what                                       | then                                                                   |
|---|---|
| two outboxes share a group                 | the second one is refused before it purges or sends anything           |
| the tables were dropped and created anew   | refused; `inorder relay reshard --restored` starts over                |
| the database was restored from a backup    | the name is the same; the operator must say that it was restored, with |
|                                            | the same command                                                       |
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from inorder.kafka.shard_log import ShardLog, require_delivered
from inorder.model.errors import ConfigurationError, FencedError, PermanentError
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
    outbox: str | None = None
    """The name of the outbox whose ids these are; None in markers of early versions."""

    def ids(self) -> Iterator[int]:
        """Every id, in order of the ranges."""
        for first, last in self.published:
            yield from range(first, last + 1)

    def encode(self) -> bytes:
        """The record's value: short, and readable with any Kafka tool."""
        spans = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.published)
        fields: dict[str, object] = {} if self.outbox is None else {"outbox": self.outbox}
        fields |= {"published": spans, "floor": self.floor}
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
            return Marker(published, int(fields["floor"]), exceeding, fields.get("outbox"))
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


class MarkerCodec:
    """Encodes and decodes the markers of one relay, and refuses those of another outbox.

    `read_outbox` returns the name of the outbox; without it markers carry no name and none is refused, as in delivery
    `at-least-once`, where there are no markers.
    """

    def __init__(
        self, read_outbox: Callable[[], str] | None = None, *, group: str = "", is_restored: bool = False
    ) -> None:
        """`is_restored` accepts the marker of another outbox; the next one has the new name."""
        self._read_outbox = read_outbox
        self._group = group
        self._is_restored = is_restored
        self._outbox: str | None = None

    def decode(self, value: bytes | None) -> Marker:
        """Decodes the last committed marker; call it behind the fence, because it reads the name of the outbox."""
        marker = Marker.decode(value)
        self._outbox = None if self._read_outbox is None else self._read_outbox()
        is_foreign = None not in (marker.outbox, self._outbox) and marker.outbox != self._outbox
        if is_foreign and not self._is_restored:
            raise ConfigurationError(
                f"The markers of relay.group = {self._group!r} are those of another outbox: their ids are not ours.",
                hint="Give each outbox a group of its own. If these tables were created anew, run"
                " `inorder relay reshard --restored`.",
            )
        return marker

    def encode(self, marker: Marker) -> bytes:
        """Encodes a marker with the name that the last `decode` read."""
        return replace(marker, outbox=self._outbox).encode()


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
