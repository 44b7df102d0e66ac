"""Journals on real Kafka and PostgreSQL, and in memory: whatever an application may be given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeAlias

import pytest

import inorder
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.testing import NEVER, MemoryJournals, Regime
from tests.integration.journal.replicator import Replicator
from tests.selection import few

Journals: TypeAlias = inorder.Journals | MemoryJournals

BEHIND = Regime("the store is 2 behind, its offset one more", 2, 1)


@pytest.fixture
def topic(unique: str) -> str:
    return unique


@pytest.fixture(
    params=few(
        ["kafka, head cache", "kafka", "kafka, keys", "memory, head cache", "memory", "memory, keys"],
        "kafka, head cache",
        "memory",
        "memory, keys",
    )
)
def journals(request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> Iterator[Journals]:
    system, _, option = request.param.partition(", ")
    cache, keys = option == "head cache", f"sqlite:///{tmp_path / 'keys.db'}" if option == "keys" else None
    if system == "memory":
        with MemoryJournals(partitions=2, head_cache=cache, regime=NEVER, origin="here", keys=keys) as memory:
            yield memory
        return
    kafka, url = request.getfixturevalue("kafka_bootstrap"), request.getfixturevalue("postgres_url")
    ensure_topic({"bootstrap.servers": kafka}, topic, 2)
    settings = inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka},
        database={"url": url},
        journal={"head_cache": cache, "origin": "here", "keys": keys and url},
    )
    store = PostgresJournal(url)
    store.install()
    store.close()
    with inorder.Journals(settings) as journals:
        yield journals


@pytest.fixture(params=[True, False], ids=["replicating", "never replicated"])
def replicating(request: pytest.FixtureRequest, topic: str, journals: Journals) -> Iterator[None]:
    if isinstance(journals, MemoryJournals):
        if request.param:
            journals.replicator.follow(BEHIND)
        yield
        return
    kafka, url = request.getfixturevalue("kafka_bootstrap"), request.getfixturevalue("postgres_url")
    with Replicator({"bootstrap.servers": kafka}, url, topic, segment_size=5) if request.param else nullcontext():
        yield
