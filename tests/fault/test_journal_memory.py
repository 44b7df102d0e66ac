"""Reads stream: reading a large journal takes hardly more memory than reading a small one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.bench.journal import replicate_all
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key, PartitionOffset

SOURCE = Path(inorder.__file__).parents[1]
PAYLOAD = b"x" * 100
AT_ONCE = 200
ON_THE_WAY = 500

ReadLarge = Callable[[int, bool], dict[str, int]]


@pytest.fixture
def read_large(kafka_bootstrap: str, postgres_url: str, unique: str) -> ReadLarge:
    """Appends so many events to one journal, replicates them or not, and reads them in a separate process."""
    settings: dict[str, Any] = {
        "kafka": {"bootstrap.servers": kafka_bootstrap},
        "database": {"url": postgres_url},
        "journal": {"head_cache": False},
    }

    def read(events: int, replicated: bool) -> dict[str, int]:
        ensure_topic(settings["kafka"], unique, 1)
        with closing(PostgresJournal(postgres_url)) as store:
            store.install()
        with inorder.Journals(inorder.Settings.load(None, **settings)) as journals:
            journals.journal(Key("small", unique)).append([Event(1, PAYLOAD)])
            _fill(journals, Key("large", unique), events)
        if replicated:
            replicate_all(settings["kafka"], postgres_url, unique)
        ran = subprocess.run(
            [sys.executable, "-m", "tests.fault.journal_reading", json.dumps(settings), unique],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        told: dict[str, int] = json.loads(ran.stdout)
        return told

    return read


def _fill(journals: inorder.Journals, key: Key, events: int) -> None:
    journal = journals.journal(key)
    sent: list[Future[PartitionOffset]] = []
    for first in range(1, events + 1, AT_ONCE):
        sent.append(journal.append_later([Event(first + step, PAYLOAD) for step in range(AT_ONCE)]))
        if len(sent) >= ON_THE_WAY:
            wait(sent)
            sent.clear()
    wait(sent)


@pytest.mark.full
@pytest.mark.parametrize(("events", "replicated"), [(20_000, True), (100_000, False)], ids=["store", "Kafka alone"])
def test_a_large_journal_is_streamed(read_large: ReadLarge, events: int, replicated: bool) -> None:
    told = read_large(events, replicated)
    assert told["count"] == events
    assert told["grown"] < 30_000_000


@pytest.mark.fault
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("replicated", [True, False], ids=["from the store", "from Kafka alone"])
def test_a_journal_of_2_000_000_events_is_read_in_less_than_150_mb(read_large: ReadLarge, replicated: bool) -> None:
    told = read_large(2_000_000, replicated)
    assert told["count"] == 2_000_000
    assert told["grown"] < 150_000_000
