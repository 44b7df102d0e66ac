"""Replication was down for a day: reads stay correct, and neither they nor catching up need more memory."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.journal.stores.opening import JournalStore
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import JournalChangedError
from inorder.model.journal import Event, Key
from tests.fault.backlog import Backlog

SOURCE = Path(inorder.__file__).parents[1]
SAMPLE = 20
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Place:
    """Servers, a folder, and how to run a process of ours."""

    bootstrap: str
    url: str
    topic: str
    folder: Path

    def settings(self, *, head_cache: bool) -> dict[str, Any]:
        return {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "database": {"url": self.url},
            "journal": {"head_cache": head_cache},
        }

    def backlog(self, topic: str, actions: int, *, seed: int = 1) -> Backlog:
        began = time.monotonic()
        backlog = Backlog({"bootstrap.servers": self.bootstrap}, topic, actions, seed)
        backlog.write(SAMPLE)
        (self.folder / topic).write_text(json.dumps(backlog.expectations()))
        told("written", {"actions": actions, "seconds": time.monotonic() - began})
        return backlog

    def read(self, order: str, backlog: Backlog, *, head_cache: bool) -> dict[str, Any]:
        """The result of a process that does nothing else."""
        settings, expectations = json.dumps(self.settings(head_cache=head_cache)), str(self.folder / backlog.topic)
        found = run("backlog_reading", order, settings, backlog.topic, f"{self.topic}.small", expectations)
        return told(f"{order}, head cache {head_cache}", found)

    def replicate(self, backlog: Backlog) -> dict[str, Any]:
        return told("replicated", run("backlog_replicating", self.bootstrap, self.url, backlog.topic))


def run(module: str, *arguments: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.fault.{module}", *arguments],
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}"},
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def told(what: str, figures: dict[str, Any]) -> dict[str, Any]:
    shown = {name: round(value / MEGABYTE if name == "grown" else value, 2) for name, value in figures.items()}
    print(f"{what}: {shown}")  # noqa: T201 - the figures of a long run
    return figures


@pytest.fixture
def place(
    kafka_bootstrap: str, postgres_url: str, unique: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Place:
    caplog.set_level(logging.ERROR, "inorder.journal")  # the backlog has some thousand forks
    made = Place(kafka_bootstrap, postgres_url, unique, tmp_path)
    with closing(PostgresJournal(postgres_url)) as store:
        store.install()
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, f"{unique}.small", 1)
    with inorder.Journals(inorder.Settings.load(None, **made.settings(head_cache=False))) as journals:
        journals.journal(Key("small", f"{unique}.small")).append([Event(1)])
    return made


@pytest.fixture
def store(postgres_url: str) -> Iterator[JournalStore]:
    with closing(PostgresJournal(postgres_url)) as store:
        yield store


def check_store(store: JournalStore, backlog: Backlog) -> None:
    """Checks that the store has every journal of the topic, equal to the topic, and no other."""
    assert set(store.ids(backlog.topic)) == {id for id, told in backlog.told.items() if told.pointer is not None}
    for id, model in backlog.told.items():
        key = Key(id, backlog.topic)
        head = store.pointer(key)
        if head is None:
            assert model.pointer is None, id
            continue
        assert head.seq_nr == model.pointer, id
        assert (head.expiry.after if head.expiry else None) == model.expire_after, id
        assert [(event.seq_nr, event.offset) for event in store.read(key, head, 1)] == model.events(), id


def read_meanwhile(place: Place, backlog: Backlog, over: threading.Event) -> dict[str, int]:
    """Reads journal after journal until it is stopped; repeats a read whose journal was truncated."""
    reads = again = 0
    with inorder.Journals(inorder.Settings.load(None, **place.settings(head_cache=True))) as journals:
        for id in cycle(backlog.sampled):
            if over.is_set() and reads >= len(backlog.sampled):
                return {"reads": reads, "again": again}
            journal = journals.journal(Key(id, backlog.topic))
            try:
                seen = [(record.seq_nr, record.offset) for record in journal.read()]
            except JournalChangedError:
                again += 1
                continue
            assert (id, seen) == (id, backlog.of(id).events())
            assert journal.pointer() == backlog.of(id).pointer
            reads += 1
    raise AssertionError("there is always another journal")


def catch_up(place: Place, backlog: Backlog) -> dict[str, Any]:
    """Replicates the backlog while others read it; returns the replicator's time and memory."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_meanwhile, place, backlog, over)
        try:
            took = place.replicate(backlog)
        finally:
            over.set()
        told("read meanwhile", reading.result(timeout=600))
    return took


def check_long_lag(place: Place, store: JournalStore, actions: int) -> None:
    backlog = place.backlog(place.topic, actions)
    for head_cache in (False, True):
        assert place.read("read", backlog, head_cache=head_cache)["grown"] < 80 * MEGABYTE
    assert place.read("subscribe", backlog, head_cache=False)["grown"] < 120 * MEGABYTE
    quarter = place.backlog(f"{place.topic}.quarter", actions // 4, seed=2)
    little, much = place.replicate(quarter)["grown"], catch_up(place, backlog)["grown"]
    assert much - little < 80 * MEGABYTE
    for each in (quarter, backlog):
        check_store(store, each)


@pytest.mark.full
def test_a_backlog_of_20_000_actions_is_read_rightly_and_caught_up_with(place: Place, store: JournalStore) -> None:
    check_long_lag(place, store, 20_000)


@pytest.mark.fault
@pytest.mark.timeout(3_600)
def test_a_backlog_of_1_000_000_actions_is_read_rightly_and_caught_up_with(place: Place, store: JournalStore) -> None:
    check_long_lag(place, store, 1_000_000)
