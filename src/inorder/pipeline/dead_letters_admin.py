"""Dead letters of the pipelines, for an operator: list, retry, discard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Literal

from inorder.engines.partition_reader import KafkaSource
from inorder.model.errors import ConfigurationError
from inorder.pipeline.dead_letters import Retrier, RetryResult
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.stores.conditional_log import KafkaConditionalLog
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.stores.ports import (
    LetterFilter,
    LetterGroup,
    LetterPlace,
    LetterPosition,
    SettledLetter,
    StoredLetter,
)
from inorder.topics.generations import TopicGenerations

Through = Literal["table", "topic"]

PAGE = 100
"""Letters that share a transaction: what a crash undoes, and how often the pipeline's lock is taken."""


class DeadLetterAdmin:
    """The dead letters of one database; `wanted` are always the fields of `LetterFilter`."""

    def __init__(
        self,
        letters: SqlDeadLetters,
        generations: TopicGenerations,
        work: Callable[[], UpsertWork],
        properties: Mapping[str, Any],
    ) -> None:
        """`work` is the job `upsert`, needed for retries only; `properties` are those of the Kafka client."""
        self._letters = letters
        self._generations = generations
        self._work = work
        self._properties = dict(properties)

    def read(self, limit: int, **wanted: Any) -> list[StoredLetter]:
        """The first dead letters by pipeline, topic, partition and offset."""
        return self.page(LetterPosition(), limit, **wanted)

    def page(self, behind: LetterPosition, most: int, **wanted: Any) -> list[StoredLetter]:
        """The first of them behind a position."""
        return self._letters.after(behind, LetterFilter(**wanted), most)

    def groups(self, **wanted: Any) -> list[LetterGroup]:
        """How many there are, by pipeline, topic and code."""
        return self._letters.groups(LetterFilter(**wanted))

    def count_up_to(self, most: int, **wanted: Any) -> int:
        """How many there are, counted up to a bound."""
        return self._letters.count(LetterFilter(**wanted), most)

    def count(self, **wanted: Any) -> dict[str, int]:
        """How many there are, by code."""
        return self._letters.counts(LetterFilter(**wanted))

    def discard(self, reason: str, **wanted: Any) -> int:
        """Discards letters, all or none, and keeps the reason; returns how many there were."""
        return self._letters.discard(LetterFilter(**wanted), reason)

    def discard_listed(self, reason: str, most: int, **wanted: Any) -> tuple[int, list[SettledLetter]]:
        """The same; returns the first of them too."""
        return self._letters.discard_listed(LetterFilter(**wanted), reason, most)

    def retry(
        self, reason: str, *, through: Through = "table", settles_stale: bool = False, **wanted: Any
    ) -> Iterator[RetryResult]:
        """Retries letters in offset order, page by page; each one that is returned is settled."""
        asked = LetterFilter(**wanted)
        places = self._letters.places(asked)
        targets = self._targets(places)
        for place in places:
            with ExitStack() as opened:
                retrier = self._retrier(targets[place.pipeline], through, opened)
                retrier = replace(retrier, reason=reason, settles_stale=settles_stale)
                yield from self._retry_place(retrier, place, asked)

    def _retrier(self, target: TableTarget, through: Through, opened: ExitStack) -> Retrier:
        source = KafkaSource(self._properties)
        retrier = Retrier(opened.enter_context(closing(target.stores())), target.mapping, source, self._letters)
        if through == "table":
            return retrier
        # Creates its table now: later a transaction of ours is open, and SQLite has one writer.
        self._generations.read_all()
        log = opened.enter_context(closing(KafkaConditionalLog(self._properties, source, target.mapping.pipeline)))
        return replace(retrier, log=log, takes_records=lambda topic: takes_records(self._generations, topic))

    def _retry_place(self, retrier: Retrier, place: LetterPlace, asked: LetterFilter) -> Iterator[RetryResult]:
        # What was sent to the topic cannot be taken back, so each letter that goes there has a transaction of its own.
        above, most = -1, PAGE if retrier.log is None else 1
        while page := self._letters.page(place, asked, above, most):
            yield from retrier.retry(page)
            above = page[-1].offset

    def _targets(self, places: Sequence[LetterPlace]) -> dict[str, TableTarget]:
        """The tables by pipeline; raises before anything is done where the settings lack one."""
        targets = {target.mapping.pipeline: target for target in self._work().targets}
        if unknown := sorted({place.pipeline for place in places} - targets.keys()):
            known = ", ".join(sorted(targets))
            raise ConfigurationError(
                f"The settings have no pipeline {unknown[0]!r}, so its dead letters cannot be retried.",
                hint=f"Its table must be in [pipeline]. Known: {known}. Or filter with --pipeline.",
            )
        if lakes := sorted({place.pipeline for place in places if targets[place.pipeline].mapping.target}):
            raise ConfigurationError(
                f"The rows of {lakes[0]!r} are in a Delta table, to which single records cannot be applied.",
                hint="Publish a new message with the content of the letter, then discard the letter. Or apply the whole"
                " topic again with `inorder pipeline reset TOPIC --from-first`.",
            )
        return targets


def takes_records(generations: TopicGenerations, topic: str) -> bool:
    """Whether messages go to this Kafka topic now; a topic that was never switched takes them."""
    states = [state for state in generations.read_all() if topic in {each.topic for each in state.generations}]
    return all(state.takes_records and state.current.topic == topic for state in states)
