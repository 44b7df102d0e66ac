"""Writers at work while a test does something to the relay, and the verdict on what arrived."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

import psycopg

from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.testing.checker import Event, Verdict, check_delivery
from tests.integration.relay.conftest import Bench

WRITERS = 3
KEYS_A_WRITER = 4


@dataclass
class Writers:
    """Threads that commit numbered events until the block is left, each on keys of its own, some rolled back.

    Transactions overlap and last differently, so that ids become visible out of order.
    """

    bench: Bench
    topic: str
    committed: list[Event] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Lets them end; may be called twice."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def verdict(self) -> Verdict:
        """What was committed against what a reader finds on the topic."""
        found = read_back(self.bench.properties, self.topic)
        return check_delivery(self.committed, [(record.key, int(record.value or b"0")) for record in found])

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        keys = [f"{number}-{place}" for place in range(KEYS_A_WRITER)]
        with self.bench.connect() as connection:
            for place in count(1):
                Outbox().publish_list(connection, [Message(self.topic, key=key, value=str(place)) for key in keys])
                if self._stop.wait(chance.choice([0.005, 0.01, 0.05])):
                    connection.rollback()
                    return
                connection.commit()
                self.committed += [(key.encode(), place) for key in keys]
                self._change_your_mind(connection, keys)

    def _change_your_mind(self, connection: psycopg.Connection[tuple[object, ...]], keys: list[str]) -> None:
        """Events that are never committed: their ids stay missing, and their values must never be seen."""
        Outbox().publish(connection, Message(self.topic, key=keys[0], value="0"))
        connection.rollback()
