"""The marker: which rows were published and may still be in the table.

It travels in the same Kafka transaction as the records that it names, so the last committed marker is always true. The
floor in it is a hint that spares the next owner a walk over dead rows; the rows are authoritative.

A marker may also carry the decision that a row has used up its attempts. The row is moved only after that marker is
committed, and the next owner moves it too, so that an owner that was fenced meanwhile can move nothing. The marker
after that no longer carries the decision: the next owner must not move a row again that an operator has put back.

**Which rows these are.** An id alone does not name a row. A database goes back in time when an asynchronous replica is
promoted, when a server crashes that does not flush each commit, when a backup or an older copy is restored, or when
somebody truncates the table or sets a sequence back. Then ids are given out again, and the last marker, which stays for
ever, names ids of rows that were never sent. So a marker has a **proof** beside each id: 32 bits of topic, headers, key
and value. A purge by a marker reads the rows that have its ids, removes those that match, and leaves all others
to be published (`split`).

- Why a proof of each row, and not of a range: a replica has some rows of a batch and not others.
- Why of the content, and not the identity of the server (system identifier and time line, `server_uuid`): a sequence
  can go back on the same server; a new server has all rows after a planned switch; foreign tables have no other column
  in common; and the content is at hand, so a proof costs a CRC and no round trip.
- Why only these columns: they are what was sent. A mark, a trigger or a person may change others. A row whose sent
  columns were changed after it was published is another event: it is published too.
- Two rows with one id and the same topic, headers, key and value cannot be distinguished: the second one counts as the
  first, so readers get one such event and not two. Events with an id or a time of their own always differ. Two rows
  that differ pass for one another with a chance of 1 in 2**32 for each id that is given out twice; or if their key and
  value, written one after the other, are the same bytes.

A purge without proof is right only where nothing can have come between: on the session that was open when the rows were
read, because a failover ends all sessions, and from the table as it was then, because a TRUNCATE ends no session.
`PurgeQueue` keeps to the first, the stores to the second (`PurgingStore.purge`). Not covered is a person who deletes
rows and sets a sequence back on the same server, in the milliseconds in which published rows wait for their purge: rows
that get these ids are deleted unsent. To compare the content in every purge would read every row twice.

**Whose ids these are.** Ids are unique within one table only. Two services with the same `relay.group` on one cluster,
or a service whose tables were created again, would find a marker with ids of other rows. So each outbox has a random
name, kept beside its registration, and every marker carries the name of its outbox. A marker without a name is of an
earlier version, and accepted.

| what                                       | then                                                                   |
|---|---|
| two outboxes share a group                 | the second one is refused before it purges or sends anything           |
| the tables were dropped and created again  | refused; `inorder relay reshard --restored` starts over                |
| the database lost its last commits         | rows that got ids of the marker are published; those that were         |
|                                            | published and are lost are logged and in `inorder relay status`        |
| a marker without proofs (version 1)        | its ids are purged as they are, as the version that wrote it would     |
| a marker of a later version                | refused: this instance must be updated first                           |

**How large it gets.** Kafka bounds a record (`message.max.bytes`), and a marker that is refused must not be blamed on a
row. So batches are cut (`markable`) and purges awaited (`PurgeQueue.wait_below`) such that a marker has less than
`MARKER_BYTES`, which is below the default of every limit. The client's setting is not read. Where the topic has a lower
limit, the relay makes its batches smaller and sets no row aside.
"""

from __future__ import annotations

import json
import logging
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

from inorder.kafka.shard_log import ShardLog, require_delivered
from inorder.model.errors import ConfigurationError, FencedError, PermanentError
from inorder.model.message import OutboxRow
from inorder.relay.stores.ports import LAST_ID, Exceeding, Origin

log = logging.getLogger("inorder.relay")

FENCE_TRIES = 10

Range = tuple[int, int]
"""First and last id, both included."""


VERSION: Final = 2
"""Of markers that this release writes. Version 1 has no `version` and no proofs."""

MARKER_BYTES: Final = 800_000
"""Of a whole marker, at most: well below the 1,000,000 that clients and brokers accept by default."""

MARKER_TOPIC_BYTES: Final = MARKER_BYTES + 1000
"""What the marker topic must accept: a marker with its key, its header and what Kafka adds."""

BATCH_BYTES: Final = 300_000
"""Of a marker for the rows of its own batch; the rest is for rows that are not purged yet."""

MOST_IDS: Final = 10_000_000
"""Ids that a marker without proofs may name; ten times what any release has written."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Rows published and not known to be purged, and the floor of the scan that read the newest of them."""

    published: tuple[Range, ...] = ()
    floor: int = 0
    exceeding: Exceeding | None = None
    outbox: str | None = None
    """The name of the outbox whose ids these are; None in markers of early versions."""
    proofs: tuple[int, ...] | None = None
    """One for each id, in order of the ranges; None in markers of version 1."""
    exceeding_proof: int | None = None
    """Of the row that `exceeding` names."""
    server: str | None = None
    """The database server that the rows were read from, where it has an identity."""
    phantoms: tuple[Range, ...] = ()
    """Ids published whose rows the database has lost, as found when it last went back in time."""

    def ids(self) -> Iterator[int]:
        """Every id, in order of the ranges."""
        for first, last in self.published:
            yield from range(first, last + 1)

    def rows(self) -> dict[int, int] | None:
        """The proof of each id; None if the marker has no proofs."""
        return None if self.proofs is None else dict(zip(self.ids(), self.proofs, strict=True))

    def encode(self) -> bytes:
        """The record's value: short, and readable with any Kafka tool."""
        fields: dict[str, object] = {"version": VERSION}
        fields |= {} if self.outbox is None else {"outbox": self.outbox}
        fields |= {"published": spans_text(self.published), "floor": self.floor}
        if self.proofs is not None:
            fields["proofs"] = b64encode(struct.pack(f"<{len(self.proofs)}I", *self.proofs)).decode()
        if self.exceeding is not None:
            fields["exceeding"] = asdict(self.exceeding)
        if self.exceeding_proof is not None:
            fields["exceeding_proof"] = self.exceeding_proof
        if self.server is not None:
            fields["server"] = self.server
        if self.phantoms:
            fields["phantoms"] = spans_text(self.phantoms)
        return json.dumps(fields).encode()

    @staticmethod
    def decode(value: bytes | None) -> Marker:
        """The marker of a record; without a record, nothing was ever published."""
        if value is None:
            return Marker()
        try:
            return _marker_of(json.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error) as error:
            raise PermanentError(
                f"The marker record {value[:80]!r} cannot be read, so it is unknown what was published.",
                hint="Look at the marker topic: a program other than an inorder relay wrote to it.",
            ) from error


def _marker_of(fields: dict[str, Any]) -> Marker:
    """Takes nothing on trust: whatever another program wrote must end as a sentence, and not in an endless loop."""
    _refuse_newer(fields)
    published, floor, outbox = _spans_of(fields["published"]), fields["floor"], fields.get("outbox")
    total = sum(last - first + 1 for first, last in published)
    proofs = _proofs_of(fields["proofs"], total) if "proofs" in fields else None
    if proofs is None and total > MOST_IDS:
        raise ValueError(total)
    if type(floor) is not int or not 0 <= floor <= LAST_ID or not isinstance(outbox, str | None):
        raise ValueError(floor, outbox)
    exceeding = Exceeding(**fields["exceeding"]) if "exceeding" in fields else None
    if exceeding is not None and type(exceeding.row_id) is not int:
        raise ValueError(exceeding.row_id)
    phantoms = _spans_of(fields.get("phantoms", ""))
    exceeding_proof, server = fields.get("exceeding_proof"), fields.get("server")
    if not isinstance(exceeding_proof, int | None) or not isinstance(server, str | None):
        raise ValueError(exceeding_proof, server)
    return Marker(published, floor, exceeding, outbox, proofs, exceeding_proof, server, phantoms)


def _refuse_newer(fields: dict[str, Any]) -> None:
    version = fields.get("version", 1)
    if type(version) is not int or not 1 <= version <= LAST_ID:
        raise ValueError("version")
    if version > VERSION:
        raise PermanentError(
            f"The last marker has version {version}, and this release of inorder reads versions up to {VERSION}: "
            "an instance of a later release has published.",
            hint="Update this instance with `pip install --upgrade inorder`, then start it again.",
        )


_SPAN = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


def _spans_of(text: str) -> tuple[Range, ...]:
    found = [_SPAN.fullmatch(span) for span in text.split(",") if span]
    spans = tuple((int(span[1]), int(span[2] or span[1])) for span in found if span is not None)
    if None in found or any(not first <= last <= LAST_ID for first, last in spans):
        raise ValueError(text[:80])
    return spans


def spans_text(spans: Iterable[Range]) -> str:
    """Ranges as text, such as `1-3,7`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _proofs_of(text: str, total: int) -> tuple[int, ...]:
    packed = b64decode(text, validate=True)
    if len(packed) != PROOF_BYTES * total:
        raise ValueError(total)
    return struct.unpack(f"<{total}I", packed)


PROOF_BYTES: Final = 4

_TOPIC, _KEY, _VALUE, _HEADERS = map(itemgetter, (1, 2, 3, 4))


class _TopicSums(dict[str, int]):
    """The checksum of each topic; there are few."""

    def __missing__(self, topic: str) -> int:
        found = self[topic] = crc32(topic.encode(errors="surrogatepass"))
        return found


_topic_sums = _TopicSums()


def prove(rows: Sequence[OutboxRow]) -> list[int]:
    """The proof of each row; the loops are C's, because this runs for every row that is published.

    A CRC finds every change of up to 32 neighbouring bits, so numbers and times that differ never pass for one another.
    """
    try:
        return list(map(crc32, map(_VALUE, rows), map(crc32, map(_KEY, rows), _sums_before_keys(rows))))
    except TypeError:  # a key or a value is null, or the driver returned text
        keys, values = [_bytes_of(row.key) for row in rows], [_bytes_of(row.value) for row in rows]
        return list(map(crc32, values, map(crc32, keys, _sums_before_keys(rows))))


def _bytes_of(value: object) -> bytes:
    match value:
        case None:
            return _NULL
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case _:
            return str(value).encode(errors="surrogatepass")


def _sums_before_keys(rows: Sequence[OutboxRow]) -> Iterator[int]:
    sums = map(_topic_sums.__getitem__, map(_TOPIC, rows))
    if any(map(_HEADERS, rows)):
        return map(crc32, map(_headers_bytes, map(_HEADERS, rows)), sums)
    return sums


_NULL: Final = b"\0null"


def _headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Their values: names are chosen by programs, values by events. Most rows have one header, if any."""
    if len(headers) == 1:
        return headers[0][1] or b""
    return b"\0".join([value or b"" for _, value in headers])


def split(rows: Sequence[OutboxRow], proofs: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Of rows that have ids of a marker: those that were published, and those that only have their ids."""
    ours, others = list[int](), list[int]()
    for row, proof in zip(rows, prove(rows), strict=True):
        (ours if proofs.get(row.id) == proof else others).append(row.id)
    return ours, others


def is_elsewhere(marker: Marker, origin: Origin) -> bool:
    """Whether a marker was written for another server, or another history of it, as far as both are known."""
    return None not in (marker.server, origin.server) and marker.server != origin.server


def phantoms(marker: Marker, replaced: Sequence[int], origin: Origin) -> tuple[Range, ...]:
    """Ids published whose rows the database has lost; none unless there is evidence that it went back in time.

    The evidence is a row that has an id of the marker and another content, or another server. Then ids above the last
    one that the database has given out are lost too; all that were published between belong to them, also those that
    earlier markers named. If writers have taken these ids again by now, only those of the last marker are known: here
    from rows that are visible, and from others when the term reads them (`Term.claim`).
    """
    if not replaced and not is_elsewhere(marker, origin):
        return ()
    top = max((last for _, last in marker.published), default=0)
    lost = ranges(sorted(replaced))
    if origin.last_id is not None and origin.last_id < top:
        lost = (*((first, last) for first, last in lost if last <= origin.last_id), (origin.last_id + 1, top))
    return lost[-MOST_PHANTOMS:]


def settled_floor(marker: Marker, *, replaced: bool, origin: Origin) -> int:
    """Up to where no id will appear any more, in the database that a new owner reads.

    A database that went back in time gives the ids out again that it has lost, perhaps below the marker's floor. Rows
    above the floor would then be published before them. The last id that it has given out is no floor either: open
    transactions may hold it, and lower ones. So reads begin at the head, and the floor rises when those have ended.
    """
    went_back = origin.last_id is not None and origin.last_id < marker.floor
    return 0 if went_back or replaced or is_elsewhere(marker, origin) else marker.floor


MOST_PHANTOMS: Final = 100
"""Ranges of lost ids that markers carry from then on."""


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """The rows of one batch, as the marker names them."""

    ids: Sequence[int]
    """In order."""
    proofs: Sequence[int]
    spans: tuple[Range, ...]
    bytes: int
    """What they take in a marker, at most."""

    @staticmethod
    def of(rows: Sequence[OutboxRow]) -> PublishedBatch:
        ids = [row.id for row in rows]
        spans = ranges(ids)
        return PublishedBatch(ids, prove(rows), spans, PROOF_TEXT_BYTES * len(ids) + sum(map(_span_bytes, spans)))


PROOF_TEXT_BYTES: Final = 6
"""Four bytes as base64, rounded up."""

MOST_ROW_BYTES: Final = PROOF_TEXT_BYTES + 2 * 20


def _span_bytes(span: Range) -> int:
    digits = len(str(span[1])) + 1
    return digits if span[0] == span[1] else 2 * digits


def name_rows(batches: Iterable[PublishedBatch], marker: Marker) -> Marker:
    """The marker with the rows of these batches, and their proofs."""
    found = list(batches)
    spans = tuple(span for batch in found for span in batch.spans)
    return replace(marker, published=spans, proofs=tuple(chain.from_iterable(batch.proofs for batch in found)))


def markable(rows: Sequence[OutboxRow], most_bytes: int = BATCH_BYTES) -> int:
    """How many of the rows one batch may have, so that they take no more than this in a marker; one at least."""
    if len(rows) * MOST_ROW_BYTES <= most_bytes:
        return len(rows)
    size, last = 0, -1
    for count, row in enumerate(rows):
        # A range has two ends; the second one is counted where it begins.
        size += PROOF_TEXT_BYTES + (0 if row.id == last + 1 else 2 * len(str(row.id)) + 4)
        if size > most_bytes:
            return max(1, count)
        last = row.id
    return len(rows)


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
                hint="Give each outbox a group of its own. If these tables were created again, run"
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
