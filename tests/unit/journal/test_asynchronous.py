"""The journals of async code do what the synchronous ones do, and hold the event loop up for nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from inorder.journal.asynchronous import PAGE, AsyncJournalClient
from inorder.journal.subscription import Subscription
from inorder.model.errors import DamagedRecordError, DeadlineError, SeqNrConflictError, ValidationError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset
from inorder.model.message import Record
from tests.unit.journal.subscribing import TOPIC, Topic

Scene = Callable[[AsyncJournalClient, Topic], Coroutine[Any, Any, None]]


def play(scene: Scene, topic: Topic | None = None, threads: int = 2) -> None:
    """Runs a scene with async journals over a topic in memory."""
    world = topic or Topic(1)

    def subscribe(
        topic: str,
        checkpoint: Any = None,
        *,
        idle_seconds: float | None = None,
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> Subscription:
        assert topic == TOPIC
        return world.subscribe(checkpoint, idle_seconds=idle_seconds, on_damaged=on_damaged)

    async def main() -> None:
        async with AsyncJournalClient(world.journals, subscribe, threads=threads) as journals:
            async with asyncio.timeout(30):
                await scene(journals, world)

    asyncio.run(main())


def test_the_whole_life_of_a_journal() -> None:
    async def scene(journals: AsyncJournalClient, topic: Topic) -> None:
        journal = journals.journal(Key("a", TOPIC))
        assert (await journal.pointer(), await journal.delete()) == (None, None)
        assert await journal.append([Event(1), Event(2, "two")]) == PartitionOffset(0, 2)
        assert [record.seq_nr async for record in journal.read()] == [1, 2]
        assert [record.event.payload async for record in journal.read(2, 2)] == ["two"]
        await journal.delete(1)
        assert ([record.seq_nr async for record in journal.read()], await journal.pointer()) == ([2], 2)
        topic.replicate()
        assert [id async for id in journals.ids(TOPIC)] == ["a"]
        mark = await journal.mark("mine")
        assert mark < await journal.purge()
        assert await journal.pointer() is None

    play(scene)


def test_the_errors_are_the_same() -> None:
    async def scene(journals: AsyncJournalClient, _: Topic) -> None:
        journal = journals.journal(Key("a", TOPIC))
        with pytest.raises(ValidationError, match="seq_nr"):
            await journal.append([Event(0)])
        await journal.append([Event(1)], expected_seq_nr=0)
        with pytest.raises(SeqNrConflictError):
            await journal.append([Event(1)], expected_seq_nr=0)

    play(scene)


def test_more_appends_than_threads_wait_for_kafka_at_once() -> None:
    topic = Topic(1)
    waiting: list[tuple[Record, Future[PartitionOffset]]] = []

    def send(record: Record) -> Future[PartitionOffset]:
        future: Future[PartitionOffset] = Future()
        waiting.append((record, future))
        if len(waiting) == 50:
            for offset, (_, each) in enumerate(waiting):
                each.set_result(PartitionOffset(0, offset))
        return future

    topic.log.send = send  # type: ignore[method-assign]  # a broker that answers when all fifty are there

    async def scene(journals: AsyncJournalClient, _: Topic) -> None:
        appends = [journals.journal(Key(f"id {number}", TOPIC)).append([Event(1)]) for number in range(50)]
        assert len(set(await asyncio.gather(*appends))) == 50

    play(scene, topic)


def test_a_task_that_is_cancelled_leaves_the_answer_to_the_log() -> None:
    topic = Topic(1)
    answer: Future[PartitionOffset] = Future()
    topic.log.send = lambda record: answer  # type: ignore[method-assign]  # noqa: ARG005 - a slow broker

    async def scene(journals: AsyncJournalClient, _: Topic) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(journals.journal(Key("a", TOPIC)).append([Event(1)]), 0.05)
        assert not answer.cancelled()
        answer.set_result(PartitionOffset(0, 0))

    play(scene, topic)


def test_a_slow_reader_is_not_overrun() -> None:
    topic = Topic(1)
    read = count()

    def records(*_: object) -> Any:
        for number in range(1, 100_000):
            next(read)
            yield EventRecord(Event(number), topic.journals.now(), PartitionOffset(0, number))

    topic.journals.reader.events = records  # type: ignore[assignment,method-assign]  # a journal without end

    async def scene(journals: AsyncJournalClient, _: Topic) -> None:
        stream = journals.journal(Key("a", TOPIC)).read()
        assert [(await anext(stream)).seq_nr for _ in range(3)] == [1, 2, 3]
        await stream.aclose()
        await journals.close()
        assert next(read) <= 2 * PAGE

    play(scene, topic)


def test_a_read_that_fails_fails_in_the_task() -> None:
    topic = Topic(1)

    def records(*_: object) -> Any:
        yield EventRecord(Event(1), topic.journals.now(), PartitionOffset(0, 1))
        raise DeadlineError("too slow")

    topic.journals.reader.events = records  # type: ignore[assignment,method-assign]  # a fault in one place

    async def scene(journals: AsyncJournalClient, _: Topic) -> None:
        with pytest.raises(DeadlineError, match="too slow"):
            assert [record async for record in journals.journal(Key("a", TOPIC)).read()] == []

    play(scene, topic)


class TestSubscriptions:
    """They hold a thread of their own, and let it go."""

    def test_it_goes_on_from_its_checkpoint(self) -> None:
        async def scene(journals: AsyncJournalClient, topic: Topic) -> None:
            topic.append("a", 1, 2)
            events = [each async for each in journals.subscribe(TOPIC, idle_seconds=0)]
            assert [each.record.seq_nr for each in events] == [1, 2]
            rest = journals.subscribe(TOPIC, events[0].checkpoint, idle_seconds=0)
            assert [each.record.seq_nr async for each in rest] == [2]

        play(scene)

    def test_more_of_them_than_threads_wait_while_others_append(self) -> None:
        async def scene(journals: AsyncJournalClient, _: Topic) -> None:
            async def first() -> int:
                async for each in journals.subscribe(TOPIC):
                    return each.record.seq_nr
                return 0

            waiting = [asyncio.create_task(first()) for _ in range(5)]
            await journals.journal(Key("a", TOPIC)).append([Event(7)])
            assert await asyncio.gather(*waiting) == [7] * 5

        play(scene, threads=1)

    def test_a_bad_checkpoint_is_refused(self) -> None:
        async def scene(journals: AsyncJournalClient, _: Topic) -> None:
            with pytest.raises(ValidationError):
                assert [each async for each in journals.subscribe(TOPIC, "nonsense")]

        play(scene)

    def test_no_thread_is_left_behind(self) -> None:
        before = set(threading.enumerate())

        async def scene(journals: AsyncJournalClient, _: Topic) -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    assert [each async for each in journals.subscribe(TOPIC)]

        play(scene)
        deadline = time.monotonic() + 10
        left = set(threading.enumerate()) - before
        for thread in left:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in left)
