"""Dead letters of the pipelines: looked at, retried, discarded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, Literal

from inorder.database.database import open_database
from inorder.engines.partition_reader import KafkaSource
from inorder.model.errors import ConfigurationError
from inorder.pipeline.dead_letters import Retrier, RetryResult
from inorder.pipeline.job import TableTarget, upsert_work
from inorder.pipeline.stores.conditional_log import KafkaConditionalLog
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.stores.ports import LetterFilter, LetterPlace, StoredLetter
from inorder.settings import Settings
from inorder.topics.generations import TopicGenerations
from inorder.topics.stores.generations import open_generations

Through = Literal["table", "topic"]

PAGE = 100
"""Letters that share a transaction: what a crash undoes, and how often the pipeline's lock is taken."""


def list_dead_letters(settings: Settings, limit: int, **wanted: Any) -> list[StoredLetter]:
    """Dead letters by pipeline, topic, partition and offset, the first so many; `wanted` are the fields of `Filter`."""
    found: list[StoredLetter] = []
    with _opened(settings) as store:
        for place in store.places(LetterFilter(**wanted)):
            found += store.page(place, LetterFilter(**wanted), most=limit - len(found))
            if len(found) >= limit:
                break
    return found


def count_dead_letters(settings: Settings, **wanted: Any) -> dict[str, int]:
    """How many there are, by code."""
    with _opened(settings) as store:
        return store.counts(LetterFilter(**wanted))


def discard_dead_letters(settings: Settings, reason: str, **wanted: Any) -> int:
    """Gives letters up, all or none, and notes the reason; returns how many there were."""
    with _opened(settings) as store:
        return store.discard(LetterFilter(**wanted), reason)


def retry_dead_letters(
    settings: Settings, reason: str, *, through: Through = "table", settles_stale: bool = False, **wanted: Any
) -> Iterator[RetryResult]:
    """Retries letters in offset order, some at a time; each that is given back is done with."""
    asked = LetterFilter(**wanted)
    with _opened(settings) as letters:
        places = letters.places(asked)
        targets = _targets(settings, places)
        for place in places:
            with ExitStack() as opened:
                retrier = _retrier(settings, targets[place.pipeline], letters, through, opened)
                retrier = replace(retrier, reason=reason, settles_stale=settles_stale)
                yield from _retried(retrier, letters, place, asked)


def _retrier(
    settings: Settings, target: TableTarget, letters: SqlDeadLetters, through: Through, opened: ExitStack
) -> Retrier:
    properties = dict(settings.kafka.properties)
    source = KafkaSource(properties)
    retrier = Retrier(opened.enter_context(closing(target.stores())), target.mapping, source, letters)
    if through == "table":
        return retrier
    generations = opened.enter_context(closing(open_generations(settings)))
    # Its table is made now: later a transaction of ours is open, and SQLite has one writer.
    generations.read_all()
    log = opened.enter_context(closing(KafkaConditionalLog(properties, source, target.mapping.pipeline)))
    return replace(retrier, log=log, takes_records=lambda topic: takes_records(generations, topic))


def takes_records(generations: TopicGenerations, topic: str) -> bool:
    """Whether a Kafka topic is what its messages go to now; one that was never switched is."""
    states = [state for state in generations.read_all() if topic in {each.topic for each in state.generations}]
    return all(state.takes_records and state.current.topic == topic for state in states)


def _retried(
    retrier: Retrier, letters: SqlDeadLetters, place: LetterPlace, asked: LetterFilter
) -> Iterator[RetryResult]:
    # What was sent to the topic cannot be taken back, so each letter that goes there has a transaction of its own.
    above, most = -1, PAGE if retrier.log is None else 1
    while page := letters.page(place, asked, above, most):
        yield from retrier.retry(page)
        above = page[-1].offset


def _targets(settings: Settings, places: list[LetterPlace]) -> dict[str, TableTarget]:
    """The tables by pipeline; one that the settings do not know is refused before anything is done."""
    targets = {target.mapping.pipeline: target for target in upsert_work(settings).targets}
    if unknown := sorted({place.pipeline for place in places} - targets.keys()):
        raise ConfigurationError(
            f"The settings have no pipeline {unknown[0]!r}, so its dead letters cannot be retried.",
            hint=f"Its table must be in [pipeline]. Known: {', '.join(sorted(targets))}. Or filter with --pipeline.",
        )
    return targets


@contextmanager
def _opened(settings: Settings) -> Iterator[SqlDeadLetters]:
    with closing(SqlDeadLetters(open_database(settings.database.require_url(), "inorder dead-letters"))) as store:
        yield store
