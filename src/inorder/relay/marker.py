"""The marker: which ids were published and may still be in the table.

It travels in the same Kafka transaction as the records it speaks of, so the last committed marker is always true. The
floor in it is a hint that spares the next owner a walk over dead rows; the ids are the authority.

A marker may also carry the decision that a row has used up its attempts. The row is moved only after that marker is
committed, and the next owner moves it too, so that an owner who was fenced meanwhile can move nothing. The marker after
that carries the decision no more: a row that a person has put back must not be moved again by the next owner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from inorder.model.errors import PermanentError
from inorder.ports.exceeded_store import Exceeding

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
        """The record's value: short, and readable by whoever looks at the topic."""
        spans = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.published)
        fields: dict[str, object] = {"published": spans, "floor": self.floor}
        if self.exceeding is not None:
            fields["exceeding"] = asdict(self.exceeding)
        return json.dumps(fields).encode()

    @staticmethod
    def decode(value: bytes | None) -> Marker:
        """The marker of a record; no record at all means that nothing was ever published."""
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
                hint="Look at the marker topic: something else than an inorder relay wrote to it.",
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
