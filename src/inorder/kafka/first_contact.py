"""The first record of a producer in a partition travels alone.

A broker refuses what does not follow the last sequence number that it has seen of a producer in a partition. So behind
a batch that it refused it refuses everything that was on the way already, and nothing overtakes. But of a producer that
is new to the partition it has seen nothing, and takes **any** number for the first: if the very first batch is refused,
the next ones pass. (Seen on Kafka 4.3, with `enable.gapless.guarantee` and even with one request in flight: by then
librdkafka has built the next one.)

So rows go in two waves while a topic has partitions that are new to the producer: first the oldest row of each such
partition, and all others once those are acknowledged. From then on the broker keeps watch. It forgets a producer that
was silent in a partition for `producer.id.expiration.ms`, a day by default; we begin anew well before.

A topic may get more partitions while it is in use. Their number is asked for once a minute (`kafka/known_topics.py`),
and from then on the first record in each new one goes alone as well. The client may learn of them earlier by itself;
what is left open is a record that is refused as the very first one of a new partition in that minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from inorder.model.partition import Partitioner, partition_of
from inorder.ports.outbox_store import OutboxRow

TRUSTED_SECONDS = 3600.0
"""How long a broker is trusted to remember a producer that may have been silent."""


class FirstContact:
    """Which partitions know the producer."""

    def __init__(self, partitioners: Mapping[str, Partitioner], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._partitioners = partitioners
        self._clock = clock
        self._known: dict[str, set[int]] = {}
        self._since = clock()

    def waves(self, rows: Sequence[OutboxRow], counts: Mapping[str, int]) -> list[list[OutboxRow]]:
        """The rows in the waves in which they may go, each in order; rows of new topics with their partition chosen.

        `counts` says how many partitions each of their topics has at the moment.
        """
        if self._clock() - self._since > TRUSTED_SECONDS:
            self.forget()
        unknown = {topic for topic, partitions in counts.items() if len(self._known.get(topic, ())) < partitions}
        if not unknown:
            return [list(rows)]
        first: dict[tuple[str, int | None], OutboxRow] = {}
        rest = []
        for row in rows:
            placed = self._placed(row, counts[row.topic]) if row.topic in unknown else row
            place = (placed.topic, placed.partition)
            if row.topic not in unknown or placed.partition in self._known.get(row.topic, ()) or place in first:
                rest.append(placed)
            else:
                first[place] = placed
        return [wave for wave in (list(first.values()), rest) if wave]

    def acknowledged(self, rows: Sequence[OutboxRow]) -> None:
        """The broker has taken these rows, so it knows the producer where they went."""
        for row in rows:
            if row.partition is not None:
                self._known.setdefault(row.topic, set()).add(row.partition)

    def forget(self) -> None:
        """The producer is a new one, or the broker may have forgotten it."""
        self._known.clear()
        self._since = self._clock()

    def _placed(self, row: OutboxRow, partitions: int) -> OutboxRow:
        if row.partition is not None:
            return row
        chosen = partition_of(row.routed_by, partitions, self._partitioners.get(row.topic, Partitioner.MURMUR2))
        return row._replace(partition=row.id % partitions if chosen is None else chosen)
