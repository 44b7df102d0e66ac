"""Journals for `async` code: a thin wrapper that runs the synchronous ones on a few threads.

    async with inorder.AsyncJournals(settings) as journals:
        journal = journals.journal(inorder.Key("account-1", "journal"))
        await journal.append([inorder.Event(1, {"opened": True})])
        async for record in journal.read():
            ...

An append holds a thread only while its record is handed over, not while Kafka answers; so thousands may wait at once.
Streams fetch the next page while the last one is being processed, and no more: a slow reader is not overrun. A
subscription has a thread of its own, since it may wait for events indefinitely.

Cancelling a task never stops an append that was handed over: it may be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from itertools import islice
from typing import Any, Final, ParamSpec, Protocol, Self, TypeVar
from uuid import UUID

from inorder.journal.client import Journal, JournalClient
from inorder.journal.entity import (
    ATTEMPTS,
    AppendOptions,
    DecideAgain,
    Decided,
    Entity,
    Recovered,
    State,
    Update,
    Updated,
)
from inorder.journal.subscription import Subscribed, Subscription
from inorder.model.errors import DamagedRecordError, InorderError
from inorder.model.journal import (
    ANY_SNAPSHOT,
    MAX_SEQ_NR,
    MIN_SEQ_NR,
    DeleteTo,
    Event,
    EventRecord,
    Key,
    PartitionOffset,
    Payload,
    SeqNr,
    Snapshot,
    SnapshotCriteria,
)

T = TypeVar("T")
P = ParamSpec("P")

THREADS: Final = 8
PAGE: Final = 256
_NO_HEADERS: Mapping[str, str] = {}


class Subscribe(Protocol):
    def __call__(
        self,
        topic: str,
        checkpoint: Any = None,
        *,
        idle_seconds: float | None = None,
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> Subscription:
        """A subscription; nothing is read before it is iterated."""


class AsyncJournalClient:
    """The journals of a synchronous `JournalClient`; used by one event loop, which owns and closes it."""

    def __init__(self, journals: JournalClient, subscribe: Subscribe, *, threads: int = THREADS) -> None:
        self._journals = journals
        self._subscribe = subscribe
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="inorder-async-journal")
        self._subscriptions: set[Subscription] = set()

    def journal(self, key: Key) -> AsyncJournal:
        """The journal of a key; nothing is read or written yet."""
        return AsyncJournal(self._journals.journal(key), self._pool)

    def ids(self, topic: str) -> AsyncGenerator[str, None]:
        """The ids of all replicated journals of a topic, in any order."""
        return _stream(self._pool, lambda: _pages(self._journals.ids(topic)))

    async def update(
        self,
        key: Key,
        entity: Entity[State],
        decide: Callable[[State], Decided | Awaitable[Decided]],
        *,
        attempts: int = ATTEMPTS,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Updated[State]:
        """Updates an entity; see `JournalClient.update`. `decide` runs in the event loop, and may be a coroutine.

        `apply` runs on a thread. A task that is cancelled may have appended its events.
        """
        about = AppendOptions(expire_after, metadata, data, headers)
        update = Update(self._journals.journal(key), entity, attempts=attempts, about=about)
        while True:
            step: Recovered[State] | Updated[State] | DecideAgain = await self._run(update.recover)
            if isinstance(step, Recovered):
                decided = decide(step.state)
                step = await self._run(update.append, step, await decided if isawaitable(decided) else decided)
            if isinstance(step, Updated):
                return step
            if isinstance(step, DecideAgain):
                await asyncio.sleep(step.pause_seconds)

    async def state(self, key: Key, entity: Entity[State]) -> State:
        """The state of an entity at this moment; see `JournalClient.state`."""
        return await self._run(self._journals.state, key, entity)

    async def subscribe(
        self,
        topic: str,
        checkpoint: Any = None,
        *,
        idle_seconds: float | None = None,
        on_damaged: Callable[[DamagedRecordError], None] | None = None,
    ) -> AsyncGenerator[Subscribed, None]:
        """Every event of a topic after a checkpoint, without end; see `Journals.subscribe`."""
        found = self._subscribe(topic, checkpoint, idle_seconds=idle_seconds, on_damaged=on_damaged)
        self._subscriptions.add(found)
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"inorder-subscription-{topic}")
        try:
            async with aclosing(_stream(pool, found.batches)) as events:
                async for each in events:
                    yield each
        finally:
            found.close()
            self._subscriptions.discard(found)
            pool.shutdown(wait=False)

    async def close(self) -> None:
        """Sends what is waiting and releases all connections; may be called twice."""
        for subscription in self._subscriptions:
            subscription.close()
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(call, *arguments, **named))

    def _close(self) -> None:
        self._pool.shutdown()
        self._journals.close()


@dataclass(frozen=True, slots=True)
class AsyncRecovery:
    """A snapshot, and the events after it for `async for`, or all events if there is none."""

    snapshot: Snapshot | None
    events: AsyncGenerator[EventRecord, None]


class AsyncJournal:
    def __init__(self, journal: Journal, pool: ThreadPoolExecutor) -> None:
        self._journal = journal
        self._pool = pool
        self.key = journal.key

    async def append(
        self,
        events: Iterable[Event],
        *,
        expected_seq_nr: SeqNr | None = None,
        append_id: str | None = None,
        allow_gaps: bool = False,
        expire_after: timedelta | None = None,
        metadata: object = None,
        data: object = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> PartitionOffset:
        """Appends events, all or none; returns once all Kafka replicas have them. See `Journal.append`.

        Two appends to one journal arrive in order if the second is sent after the first was awaited.
        """
        about: dict[str, Any] = {"expire_after": expire_after, "metadata": metadata, "data": data, "headers": headers}
        about |= {"allow_gaps": allow_gaps, "append_id": append_id}
        if expected_seq_nr is not None or self._journal.waits:
            return await self._run(partial(self._journal.append, expected_seq_nr=expected_seq_nr, **about), events)
        sent = await self._run(partial(self._journal.append_later, **about), events)
        # The log completes its future in any case, so it must not be cancelled with this task.
        return await asyncio.shield(asyncio.wrap_future(sent))

    def read(self, from_seq_nr: SeqNr = MIN_SEQ_NR, to: SeqNr = MAX_SEQ_NR) -> AsyncGenerator[EventRecord, None]:
        """The events from one number to another, as the journal is when the first is requested; see `Journal.read`."""
        return _stream(self._pool, lambda: _pages(self._journal.read(from_seq_nr, to)))

    async def pointer(self) -> SeqNr | None:
        """The last number of the journal, even if it is deleted; None if there is no journal, or it is purged."""
        return await self._run(self._journal.pointer)

    async def life(self) -> UUID | None:
        """Names the life of the journal; see `Journal.life`."""
        return await self._run(self._journal.life)

    async def delete(self, to: DeleteTo = MAX_SEQ_NR, *, life: UUID | None = None) -> PartitionOffset | None:
        """Deletes the events up to a number; None if there is no journal. See `Journal.delete`."""
        return await self._run(partial(self._journal.delete, life=life), to)

    async def purge(self, *, life: UUID | None = None) -> PartitionOffset:
        """Removes the journal and everything known about it; the next append begins a new one. See `Journal.purge`."""
        return await self._run(partial(self._journal.purge, life=life))

    async def mark(self, id: str | None = None) -> PartitionOffset:
        """Writes a mark, which changes nothing."""
        return await self._run(self._journal.mark, id)

    async def save_snapshot(
        self, seq_nr: SeqNr, payload: Payload = None, *, metadata: object = None, life: UUID | None = None
    ) -> Snapshot | None:
        """Saves the state after the events up to a number; see `Journal.save_snapshot`."""
        return await self._run(partial(self._journal.save_snapshot, metadata=metadata, life=life), seq_nr, payload)

    async def snapshot(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> Snapshot | None:
        """The latest snapshot that fits."""
        return await self._run(self._journal.snapshot, criteria)

    async def snapshots(self) -> list[Snapshot]:
        """All snapshots, the latest first."""
        return await self._run(self._journal.snapshots)

    async def delete_snapshots(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> int:
        """Deletes the snapshots that fit, and no event; returns how many there were."""
        return await self._run(self._journal.delete_snapshots, criteria)

    async def recover(self, criteria: SnapshotCriteria = ANY_SNAPSHOT) -> AsyncRecovery:
        """The latest snapshot that fits and the events after it; see `Journal.recover`."""
        found = await self._run(self._journal.recover, criteria)
        return AsyncRecovery(found.snapshot, _stream(self._pool, lambda: _pages(found.events)))

    async def _run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(call, *arguments, **named))


async def _stream(
    pool: ThreadPoolExecutor, open_pages: Callable[[], Generator[list[T], None, None]]
) -> AsyncGenerator[T, None]:
    pages = await asyncio.wrap_future(pool.submit(open_pages))
    following = pool.submit(next, pages, None)
    try:
        while (page := await asyncio.wrap_future(following)) is not None:
            following = pool.submit(next, pages, None)
            for each in page:
                yield each
    finally:
        with suppress(RuntimeError):  # the pool is closed, and with it everything that was read
            pool.submit(_close, pages, following)


def _pages(records: Iterator[T]) -> Generator[list[T], None, None]:
    while page := list(islice(records, PAGE)):
        yield page


def _close(pages: Generator[list[T], None, None], following: Future[list[T] | None]) -> None:
    with suppress(InorderError, CancelledError):  # no one waits for it any more
        following.result()  # a running generator cannot be closed
    pages.close()
