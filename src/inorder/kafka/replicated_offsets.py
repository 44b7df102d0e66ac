"""Follows the topic of notices for all readers of one `Journals`, on a thread that starts with the first who waits.

It begins at the end of the topic and keeps nothing of what it reads. What was announced before is of no use: whoever
waits has asked the store, or is woken to do so once the end was found. The same after every trouble, since notices may
have come meanwhile: the topic was deleted, made anew, or the broker was away.

The store's name is asked of the store itself, and again when a wait was in vain: perhaps it has been made anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

from inorder.journal.reading.notice import notice_of
from inorder.journal.reading.waiting import Waiters
from inorder.kafka.admin import Cluster
from inorder.kafka.journal_log import KafkaTail
from inorder.kafka.journal_windows import PROPERTIES
from inorder.model.errors import InorderError, TopicUnavailableError
from inorder.ports.partition_reader import Place

log = logging.getLogger("inorder.journal")

POLL_SECONDS: Final = 0.25
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
# The broker answers as soon as there is a notice; only an idle topic waits for so long.
_PATIENT: Mapping[str, object] = {**PROPERTIES, "fetch.wait.max.ms": 500, "enable.partition.eof": False}


class ReplicatedOffsets:
    """`Notices` from Kafka; `store` tells the name of the store, None as long as it has none."""

    def __init__(self, properties: Mapping[str, Any], topic: str, store: Callable[[], str | None]) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._ask_store = store
        self._store: str | None = None
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._doubts_store = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_failing = False

    @contextmanager
    def listen(self, place: Place, offset: int) -> Iterator[threading.Event | None]:
        """An event that is set whenever the store may have passed the offset; None where waiting is not worth it."""
        heard = threading.Event()
        with self._lock:
            if self._stopping.is_set() or not self._waiters.is_worth_it(place, offset):
                leave = None
            else:
                leave = self._waiters.add(place, offset, heard.set)
                self._start()
        if leave is None:
            yield None
            return
        try:
            yield heard
        finally:
            with self._lock:
                leave()

    def in_vain(self, place: Place, offset: int) -> None:
        """Somebody waited for this and heard nothing in time."""
        with self._lock:
            self._waiters.in_vain(place, offset)
        self._doubts_store.set()

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="inorder-replicated-offsets", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                with closing(KafkaTail(self._properties, self._topic, _PATIENT)) as tail:
                    self._begin(tail)
                    pause = _FIRST_PAUSE
                    self._follow(tail)
            except InorderError as error:
                self._tell(error)
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _begin(self, tail: KafkaTail) -> None:
        self._store = self._ask_store()
        extents = Cluster(self._properties).extents(self._topic)
        if extents is None:
            text = f"Topic {self._topic!r} does not exist."
            raise TopicUnavailableError(self._topic, text, hint="A replicator of this version makes it.")
        tail.start({partition: extent.end for partition, extent in extents.items()})
        with self._lock:
            self._waiters.may_have_missed()
        self._is_failing = False

    def _follow(self, tail: KafkaTail) -> None:
        while not self._stopping.is_set():
            for records in tail.poll(POLL_SECONDS).values():
                for record in records:
                    self._hear(record.key, record.value)
            if self._doubts_store.is_set():
                self._doubts_store.clear()
                self._store = self._ask_store()

    def _hear(self, key: bytes | None, value: bytes | None) -> None:
        notice = notice_of(key, value)
        if notice is not None and notice.store == self._store:
            with self._lock:
                self._waiters.told(notice.place, notice.offset)

    def _tell(self, error: InorderError) -> None:
        if not self._is_failing:
            log.warning("journal.notices_not_heard topic=%s reason=%s", self._topic, error)
        self._is_failing = True
