"""Relay, `upsert` and `replicate` in one application on a standalone cluster, with a load that knows what it wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from psycopg import Connection

import inorder
from inorder.database.postgres import connect
from inorder.embedded.stack import Program
from inorder.kafka.readers import read_back
from inorder.model.journal import Event, Key
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.settings import Settings
from inorder.testing.checker import check_delivery, check_placement, check_rows
from tests.conftest import Eventually
from tests.fault.filling import INORDER
from tests.injections import recovers

EVENTS = int(os.environ.get("CLUSTER_EVENTS", "200000"))
"""Half of them through an outbox into a table, half in journals."""
KEYS = 200
JOURNALS = 20
AT_ONCE = 50
PARTITIONS = 4
WAIT_SECONDS = 300.0
"""Timeout of a step; a driver and executors start on two cores, beside the load."""

SETTINGS = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[database]
url = "{url}"
[relay]
group = "{topic}"
leadership = "database"
[journal]
store = "{url}"
topic_prefixes = ["{topic}-journal"]
[pipeline]
engine = "{engine}"
master = "{master}"
[pipeline.spark]
spark.executor.memory = "600m"
spark.decommission.enabled = true
[pipeline.upsert]
topic = "{topic}"
"""
_FIGURES = """
SELECT coalesce(sum(records_applied), 0)::int,
       coalesce(sum(records_identical + records_stale + records_ignored + records_rejected), 0)::int
FROM inorder_pointer
"""
_APPENDED = "SELECT count(*)::int FROM journal"
_STORED = "SELECT id, seq_nr, payload_txt FROM journal"


class ClusterOrdeal:
    """Relay, `upsert` and `replicate` in one application on a cluster, their writers, and what these have committed."""

    def __init__(self, config: Path, topic: str, direct: Connection[Any], eventually: Eventually) -> None:
        self.settings = Settings.load(config)
        self._topic = topic
        self._direct = direct
        self._eventually = eventually
        job = ["pipeline", "run", "relay,upsert,replicate", "--config", str(config)]
        self.driver = Program("driver", [*INORDER, *job], config.parent)
        self.placed = 0
        """Events of each key that were committed."""
        self.appended = 0
        """Events of each journal that were acknowledged."""

    def write(self, events: int) -> None:
        """Commits and appends, until so many more events are in all keys and journals together."""
        rounds = max(1, events // 2 // KEYS)
        with connect(str(self.settings.database.url), "load", autocommit=True) as connection:
            for place in range(self.placed + 1, self.placed + rounds + 1):
                some = [
                    Message(self._topic, key=str(key), value={"id": key, "data": str(place)}) for key in range(KEYS)
                ]
                with connection.transaction():
                    Outbox().publish_list(connection, some)
        self.placed += rounds
        with inorder.Journals(self.settings) as journals:
            each = max(AT_ONCE, events // 2 // JOURNALS)
            for first in range(self.appended + 1, self.appended + each + 1, AT_ONCE):
                numbers = range(first, min(first + AT_ONCE, self.appended + each + 1))
                for id in range(JOURNALS):
                    some_events = [Event(number, f"{id}/{number}") for number in numbers]
                    journals.journal(Key(f"journal-{id}", f"{self._topic}-journal")).append(some_events)
        self.appended += each

    @recovers
    def wait_for_all(self) -> None:
        """Waits until everything that was written is in the table and in the store."""
        self._eventually(lambda: self.driver.has_ended() or self._has_arrived(), WAIT_SECONDS)
        self.driver.check()

    def wait_for_progress(self) -> None:
        """Waits until something of what was written last is in the table, and something in the store."""
        before = self._arrived()
        self._eventually(
            lambda: self.driver.has_ended() or all(now > was for now, was in zip(self._arrived(), before, strict=True)),
            WAIT_SECONDS,
        )
        self.driver.check()

    def verify(self) -> None:
        """By the independent checker: nothing lost, doubled or out of order; and each record applied once."""
        records = list(read_back(self.settings.kafka.properties, self._topic))
        committed = [(str(key).encode(), place) for key in range(KEYS) for place in range(1, self.placed + 1)]
        found = check_delivery(committed, [(one.key, int(json.loads(one.value or b"")["data"])) for one in records])
        found += check_placement((one.key, one.partition) for one in records)
        rows = {id: {"data": data} for id, data in self._direct.execute("SELECT id, data FROM messages").fetchall()}
        found += check_rows({key: {"data": str(self.placed)} for key in range(KEYS)}, rows)
        assert found.holds, found
        assert self._direct.execute(_FIGURES).fetchone() == (KEYS * self.placed, 0)
        stored = sorted(self._direct.execute(_STORED).fetchall())
        numbers = range(1, self.appended + 1)
        wanted = [(f"journal-{id}", number, f"{id}/{number}") for id in range(JOURNALS) for number in numbers]
        assert stored == sorted(wanted), "every event of every journal, once, with its number"

    def _arrived(self) -> tuple[int, int]:
        applied, stored = self._direct.execute(_FIGURES).fetchone(), self._direct.execute(_APPENDED).fetchone()
        return (applied[0] if applied else 0), (stored[0] if stored else 0)

    def _has_arrived(self) -> bool:
        return self._arrived() == (KEYS * self.placed, JOURNALS * self.appended)
