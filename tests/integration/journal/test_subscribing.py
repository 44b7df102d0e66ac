"""Subscriptions and async journals on real Kafka, with either store behind them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

import inorder
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.stores.opening import open_journal_store
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import DamagedRecordError
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator
from tests.selection import few

IDLE = 2.0


@pytest.fixture(params=few(["postgres", "cassandra"], "postgres"))
def store_url(request: pytest.FixtureRequest) -> str:
    """A store with the journal's tables; on Cassandra tests share a keyspace, and keep apart by their topics."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
    else:
        url = f"{request.getfixturevalue('cassandra').url}/subscribing"
    with closing(open_journal_store(url)) as store:
        store.install()
    return url


@pytest.fixture
def settings(kafka_bootstrap: str, store_url: str, unique: str) -> inorder.Settings:
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 2)
    return inorder.Settings.load(
        None,
        kafka={"bootstrap.servers": kafka_bootstrap},
        journal={"head_cache": False, "store": store_url},
    )


@pytest.mark.full
def test_events_come_once_from_store_and_kafka_and_after_any_checkpoint_the_rest(
    settings: inorder.Settings, kafka_bootstrap: str, store_url: str, unique: str, eventually: Eventually
) -> None:
    with inorder.Journals(settings) as journals:
        ids = [f"id {number}" for number in range(6)]
        for id in ids:
            journals.journal(Key(id, unique)).append([Event(1), Event(2)])
        with Replicator({"bootstrap.servers": kafka_bootstrap}, store_url, unique):
            eventually(lambda: len(list(journals.ids(unique))) == len(ids))
        for id in ids:
            journals.journal(Key(id, unique)).append([Event(3), Event(4)])
        journals.journal(Key(ids[0], unique)).append([Event(4, "fork"), Event(5, "fork")])
        journals.journal(Key(ids[0], unique)).append([Event(5)])

        def shown(checkpoint: Any = None) -> list[tuple[str, int, Any]]:
            found = journals.subscribe(unique, checkpoint, idle_seconds=IDLE)
            return [(each.key.id, each.record.seq_nr, each.checkpoint) for each in found]

        whole = shown()
        events = [(id, seq_nr) for id, seq_nr, _ in whole]
        expected = [(id, seq_nr) for id in ids for seq_nr in (1, 2, 3, 4)] + [(ids[0], 5)]
        assert sorted(events) == sorted(expected)
        assert events[: 2 * len(ids)] == [(id, seq_nr) for id in ids for seq_nr in (1, 2)]
        for cut in (4, 15):
            rest = [(id, seq_nr) for id, seq_nr, _ in shown(whole[cut][2])]
            assert sorted(rest) == sorted(events[cut + 1 :])


@pytest.mark.full
def test_a_life_that_is_purged_and_a_journal_that_is_parked_are_no_silence(
    settings: inorder.Settings, kafka_bootstrap: str, store_url: str, unique: str, eventually: Eventually
) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    with inorder.Journals(settings) as journals:
        journals.journal(Key("again", unique)).append([Event(number) for number in range(1, 6)])
        journals.journal(Key("again", unique)).purge()
        journals.journal(Key("again", unique)).append([Event(1, "new"), Event(2)])
        journals.journal(Key("short", unique)).append([Event(number) for number in range(1, 6)])
        journals.journal(Key("short", unique)).delete(4)
        producer.produce(unique, b"", "damaged", headers=[(ACTION_HEADER, b"{")])
        assert producer.flush(60) == 0
        with Replicator({"bootstrap.servers": kafka_bootstrap}, store_url, unique):
            eventually(lambda: sorted(journals.ids(unique)) == ["again", "damaged", "short"])
        journals.journal(Key("again", unique)).append([Event(3)])
        with pytest.raises(DamagedRecordError, match="damaged is parked"):
            list(journals.subscribe(unique, idle_seconds=IDLE))
        met: list[DamagedRecordError] = []
        found = journals.subscribe(unique, idle_seconds=IDLE, on_damaged=met.append)
        events = [(each.key.id, each.record.seq_nr) for each in found]
        assert (events, len(met)) == ([("again", 1), ("again", 2), ("short", 5), ("again", 3)], 1)


def test_async_journals_append_read_and_follow(settings: inorder.Settings, unique: str) -> None:
    async def main() -> None:
        async with inorder.AsyncJournals(settings) as journals:
            journal = journals.journal(inorder.Key("a", unique))
            following = asyncio.create_task(anext(journals.subscribe(unique)))
            await asyncio.gather(
                *(journals.journal(inorder.Key(f"{n}", unique)).append([inorder.Event(1)]) for n in range(50))
            )
            await journal.append([inorder.Event(n) for n in range(1, 601)])
            assert [record.seq_nr async for record in journal.read()] == list(range(1, 601))
            assert (await following).record.seq_nr == 1

    asyncio.run(main())
