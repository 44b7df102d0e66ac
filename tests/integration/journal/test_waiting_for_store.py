"""Readers that wait for the store, on real Kafka and PostgreSQL: a notice is only a hint, and is verified."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import inorder
from inorder.engines.partition_reader import KafkaSource
from inorder.journal.client import Journal
from inorder.journal.reading import reader
from inorder.journal.reading.reader import wait_seconds
from inorder.journal.replication.job import ReplicateWork
from inorder.journal.stores import kafka_notices
from inorder.journal.stores.kafka_log import KafkaTail
from inorder.journal.stores.kafka_notices import OffsetAnnouncers, OffsetNotice, ReplicatedOffsets
from inorder.journal.stores.opening import JournalReplicas
from inorder.journal.stores.ports import LogRecord, Window
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import Cluster, ensure_compacted_topic, ensure_topic
from inorder.model.deadline import Deadline
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.noticing import all_notices, newest, publish
from tests.integration.journal.replicator import Replicator
from tests.selection import few


@dataclass
class Site:
    """A topic of journals, a topic of notices, a store, and clients of them."""

    properties: dict[str, object]
    url: str
    topic: str
    store: str
    windows: list[Window] = field(default_factory=list)

    @property
    def notices(self) -> str:
        return f"notices.{self.topic}"

    @property
    def announcers(self) -> OffsetAnnouncers:
        return OffsetAnnouncers.of(self.properties, self.notices, self.store)

    def replicator(self) -> Replicator:
        return Replicator(self.properties, self.url, self.topic, announcers=self.announcers)

    def journals(self, wait_ms: int, *, head_cache: bool = False) -> inorder.Journals:
        """Journals that record each read of the log."""
        settings = inorder.Settings.load(
            None,
            kafka={"bootstrap.servers": self.properties["bootstrap.servers"]},
            database={"url": self.url},
            journal={"wait_for_store_ms": wait_ms, "replicated_topic": self.notices, "head_cache": head_cache},
        )
        journals = inorder.Journals(settings)
        read = journals.log.records

        def records(window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
            self.windows.append(window)
            return read(window, key, deadline)

        journals.log.records = records  # type: ignore[method-assign]  # to count them
        return journals


@pytest.fixture
def site(kafka_bootstrap: str, postgres_url: str, unique: str) -> Site:
    properties: dict[str, object] = {"bootstrap.servers": kafka_bootstrap}
    ensure_topic(properties, unique, 2)
    with closing(PostgresJournal(postgres_url)) as store:
        store.install()
        name = store.identity()
    assert name is not None
    return Site(properties, postgres_url, unique, name)


def numbers(journal: Journal) -> list[int]:
    return [record.seq_nr for record in journal.read()]


@pytest.mark.parametrize("head_cache", few([False, True], False), ids=["no head cache", "head cache"])
def test_a_reader_that_waits_reads_no_record_of_a_journal_from_kafka(site: Site, head_cache: bool) -> None:
    with site.replicator(), closing(site.journals(20_000, head_cache=head_cache)) as journals:
        for id in ("a", "b", "c"):
            journal = journals.journal(Key(id, site.topic))
            for seq_nr in range(1, 9):
                journal.append([Event(seq_nr, {"n": seq_nr})])
                assert numbers(journal) == list(range(1, seq_nr + 1))
            journal.purge()
            assert numbers(journal) == []
    assert site.windows == []


def test_while_replication_is_down_one_read_waits_and_all_are_right(
    site: Site, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def noted(seconds: float, remaining: float) -> float:
        waits.append(seconds)
        return wait_seconds(seconds, remaining)

    monkeypatch.setattr(reader, "wait_seconds", noted)
    with closing(site.journals(1_000)) as journals:
        journal = journals.journal(Key("id", site.topic))
        journal.append([Event(1), Event(2)])
        for _ in range(7):
            assert numbers(journal) == [1, 2]
        assert waits == [1.0]
        assert len(site.windows) == 7
        with site.replicator():  # as soon as it is heard of again, readers wait again

            def is_read_from_the_store_alone() -> bool:
                journal.append([Event(journal.pointer() or 0, "again")])
                site.windows.clear()
                return numbers(journal) == [1, 2] and not site.windows

            assert eventually(is_read_from_the_store_alone)


@pytest.mark.parametrize("head_cache", few([False, True], False), ids=["no head cache", "head cache"])
def test_a_notice_that_lies_changes_nothing(site: Site, head_cache: bool) -> None:
    lies = [OffsetNotice(site.store, (site.topic, partition), 10**9) for partition in range(2)]
    ensure_compacted_topic(site.properties, site.notices, 1)
    publish(site.properties, site.notices, *lies)
    with closing(site.journals(300, head_cache=head_cache)) as journals:
        journal = journals.journal(Key("id", site.topic))
        for seq_nr in range(1, 4):
            journal.append([Event(seq_nr)])
            publish(site.properties, site.notices, *lies)
            assert numbers(journal) == list(range(1, seq_nr + 1))
    assert site.windows


@pytest.mark.full
def test_reads_are_right_when_the_topic_of_notices_is_deleted_and_it_is_made_again(
    site: Site, eventually: Eventually
) -> None:
    with site.replicator(), closing(site.journals(500)) as journals:
        journal = journals.journal(Key("id", site.topic))
        journal.append([Event(1)])
        assert numbers(journal) == [1]
        deleted = eventually(lambda: Cluster(site.properties).topic_id(site.notices))
        delete_notices(site)
        for seq_nr in range(2, 6):
            journal.append([Event(seq_nr)])
            assert numbers(journal) == list(range(1, seq_nr + 1))

        # Until the broker has applied the deletion it still names the first one, and settings of one that is just
        # being deleted are the defaults.
        eventually(lambda: Cluster(site.properties).topic_id(site.notices) not in (None, deleted))
        assert Cluster(site.properties).topic_settings(site.notices)["cleanup.policy"] == "compact"


def test_a_reader_does_not_let_the_broker_create_the_topic_of_notices(
    site: Site, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A deleted one would be back at once, and not compacted."""
    seen: list[Mapping[str, object]] = []

    class NotedTail(KafkaTail):
        def __init__(self, properties: Mapping[str, object], *others: Any) -> None:
            seen.append(properties)
            super().__init__(properties, *others)

    monkeypatch.setattr(kafka_notices, "KafkaTail", NotedTail)
    properties = {**site.properties, "allow.auto.create.topics": True}
    offsets = ReplicatedOffsets(properties, site.notices, lambda: site.store)
    with closing(offsets), offsets.listen((site.topic, 0), 1):
        eventually(lambda: seen)
    assert {each["allow.auto.create.topics"] for each in seen} == {False}


def delete_notices(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": str(site.properties["bootstrap.servers"])})
    admin.delete_topics([site.notices])[site.notices].result(60)


@pytest.fixture
def following(site: Site) -> Iterator[ReplicatedOffsets]:
    ensure_compacted_topic(site.properties, site.notices, 1)
    with closing(ReplicatedOffsets(site.properties, site.notices, lambda: site.store)) as offsets:
        yield offsets


def test_only_notices_of_our_store_that_reach_the_offset_are_heard(site: Site, following: ReplicatedOffsets) -> None:
    here, there = (site.topic, 0), (site.topic, 1)
    with following.listen(here, 7) as heard, following.listen(there, 3) as heard_there:
        assert heard is not None
        assert heard_there is not None
        assert heard.wait(30)  # the end of the topic is found: whatever was said before, the store is asked
        assert heard_there.wait(30)
        heard.clear()
        heard_there.clear()
        publish(
            site.properties, site.notices,
            OffsetNotice("another", here, 9), OffsetNotice(site.store, here, 6),
            OffsetNotice(site.store, ("another", 0), 9), OffsetNotice(site.store, there, 3),
        )  # fmt: skip
        assert heard_there.wait(30)
        assert not heard.is_set()
        publish(site.properties, site.notices, OffsetNotice(site.store, here, 8))
        assert heard.wait(30)


def test_a_topic_that_is_made_anew_is_heard_again(
    site: Site, following: ReplicatedOffsets, eventually: Eventually
) -> None:
    place = site.topic, 0
    with following.listen(place, 7) as heard:
        assert heard is not None
        assert heard.wait(30)
        publish(site.properties, site.notices, *(OffsetNotice(site.store, place, offset) for offset in range(5)))
        delete_notices(site)

        def is_heard() -> bool:
            heard.clear()
            publish(site.properties, site.notices, OffsetNotice(site.store, place, 8))  # and the broker makes the topic
            return heard.wait(0.5)

        assert eventually(is_heard)


def test_who_listens_after_the_end_is_told_that_it_is_not_worth_it(site: Site, following: ReplicatedOffsets) -> None:
    following.close()
    following.close()
    with following.listen((site.topic, 0), 7) as heard:
        assert heard is None


def fill(site: Site, count: int) -> dict[int, list[int]]:
    """So many marks on each partition; returns their offsets."""
    with closing(site.journals(0)) as journals:
        places = list[tuple[int, int]]()
        for id in (f"id{number}" for number in range(100)):
            place = journals.journal(Key(id, site.topic)).mark()
            places.append((place.partition, place.offset))
            if all(sum(partition == each for partition, _ in places) >= count for each in (0, 1)):
                break
    return {each: [offset for partition, offset in places if partition == each] for each in (0, 1)}


@pytest.mark.full
@pytest.mark.parametrize("at_once", [10_000, 1], ids=["all in one poll", "one record a poll"])
def test_every_slice_is_announced_and_of_several_at_once_the_newest(
    site: Site, at_once: int, eventually: Eventually
) -> None:
    offsets = fill(site, 4)
    last = {partition: found[-1] for partition, found in offsets.items()}
    source = KafkaSource(site.properties)
    work = ReplicateWork((site.topic,), JournalReplicas(site.url), announcers=site.announcers)
    with (
        closing(work.open()) as worker,
        closing(source.open({(site.topic, each): None for each in (0, 1)}, headers=True)) as reader,
    ):
        applied = list[tuple[int, int]]()
        while dict(applied) != last:
            for batch in reader.read(at_once, 1.0).slices:
                applied.append((batch.partition, worker.apply(batch, 0).next_offset - 1))

    def notices() -> list[tuple[int, int]]:
        return [(notice.place[1], notice.offset) for notice in all_notices(site.properties, site.notices)]

    eventually(lambda: dict(notices()) == last)
    assert set(notices()) <= set(applied)
    for partition in (0, 1):
        own = [offset for each, offset in notices() if each == partition]
        assert own == sorted(set(own))
        assert own[-1] == last[partition]
    assert newest(all_notices(site.properties, site.notices)) == last
    assert {notice.store for notice in all_notices(site.properties, site.notices)} == {site.store}
