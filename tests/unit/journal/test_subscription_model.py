"""A subscription cut anywhere, during any other action, yields every event once, in order, and no fork."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.action import Condition, Delete, Mark, Purge
from inorder.journal.codec import RecordSender, append_record
from inorder.journal.life import JournalFold
from inorder.model.journal import Key, RecordMetadata
from inorder.model.message import Limits
from tests.selection import examples
from tests.unit.journal.subscribing import IDS, TOPIC, Subscriber, Topic
from tests.unit.journal.test_model import RacingStore
from tests.unit.journal.world import NOON, event

Step = Callable[[Topic, Subscriber, dict[str, int]], object]


def _append(id: str, first: int, count: int) -> Step:
    def step(topic: Topic, subscriber: Subscriber, ends: dict[str, int]) -> None:
        del subscriber
        start = max(1, ends.get(id, 0) + first)
        topic.append(id, *range(start, start + count))
        ends[id] = max(ends.get(id, 0), start + count - 1)

    return step


def _append_as_the_original(id: str, first: int, count: int) -> Step:
    def step(topic: Topic, subscriber: Subscriber, ends: dict[str, int]) -> None:
        del subscriber
        start = max(1, ends.get(id, 0) + first)
        topic.append(id, *range(start, start + count), is_legacy=True)
        ends[id] = max(ends.get(id, 0), start + count - 1)

    return step


def _append_on_condition(id: str, count: int, lag: int) -> Step:
    """An append on the end that the journal had, or on one that it no longer has."""

    def step(topic: Topic, subscriber: Subscriber, ends: dict[str, int]) -> None:
        del subscriber
        marked = topic.journals.moment(Key(id, TOPIC))
        plan = marked.moment.plan
        end = max(0, (plan.pointer or 0) - lag)
        name = JournalFold(Key(id, TOPIC), marked.mark.partition).name(plan.life)
        condition = Condition(name, end)
        events = [event(number) for number in range(end + 1, end + 1 + count)]
        about = (NOON, RecordSender(), RecordMetadata())
        id_ = f"append {topic.log.end(TOPIC, marked.mark.partition)}"
        key = Key(id, TOPIC)
        topic.log.send(append_record(key, events, *about, {}, Limits(), append_id=id_, condition=condition))
        ends[id] = max(ends.get(id, 0), end + count)

    return step


def _remove_life(id: str, action: Delete | Purge, late: bool) -> Step:
    """A delete or purge of the life that is there; a late one comes again after the next append."""

    def step(topic: Topic, subscriber: Subscriber, ends: dict[str, int]) -> None:
        del subscriber
        marked = topic.journals.moment(Key(id, TOPIC))
        name = JournalFold(Key(id, TOPIC), marked.mark.partition).name(marked.moment.plan.life)
        acted = replace(action, condition=Condition(name, seen=marked.mark))
        topic.act(id, acted)
        if late:
            topic.append(id, 1)
            topic.act(id, acted)
        ends[id] = 1

    return step


def _purge(id: str) -> Step:
    def step(topic: Topic, subscriber: Subscriber, ends: dict[str, int]) -> None:
        del subscriber
        topic.act(id, Purge())
        ends[id] = 0

    return step


ids = st.sampled_from(IDS)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(_append, ids, st.just(1), st.integers(1, 3)),
    st.builds(_append, ids, st.integers(-2, 3), st.integers(1, 3)),
    st.builds(_append_as_the_original, ids, st.integers(-2, 1), st.integers(1, 3)),
    st.builds(_append_on_condition, ids, st.integers(1, 3), st.integers(0, 1)),
    st.builds(_remove_life, ids, st.sampled_from([Purge(), Delete(2)]), st.booleans()),
    st.builds(_purge, ids),
    st.builds(lambda id, to: lambda topic, *_: topic.act(id, Delete(to)), ids, st.integers(1, 9)),
    st.builds(lambda id: lambda topic, *_: topic.act(id, Mark("m")), ids),
    st.builds(
        lambda part, behind, moves: lambda topic, *_: topic.replicate(part, behind=behind, moves_offset=moves),
        st.integers(0, 1),
        st.integers(0, 4),
        st.booleans(),
    ),
    st.builds(lambda part: lambda topic, *_: topic.forget(part), st.integers(0, 1)),
)
CUTS: st.SearchStrategy[Step] = st.builds(lambda limit: lambda _, it, __: it.take(limit), st.integers(0, 4))


@examples(200)
@given(st.lists(STEPS | STEPS | CUTS, min_size=5, max_size=40), st.sampled_from([1, 2, 100]))
def test_cut_anywhere_and_taken_up_again_it_shows_the_whole(steps: list[Step], max_journals: int) -> None:
    topic, ends = Topic(2), dict[str, int]()
    subscriber = Subscriber(topic, max_journals)
    for step in steps:
        step(topic, subscriber, ends)
    subscriber.take()
    subscriber.check()
    topic.replicate()
    whole = Subscriber(topic, max_journals)
    whole.take()
    whole.check()


@examples(200)
@given(st.lists(STEPS, min_size=2, max_size=15), st.lists(STEPS, min_size=3, max_size=25), st.sampled_from([1, 2, 100]))
def test_whatever_happens_while_it_reads_it_shows_the_whole(
    before: list[Step], meanwhile: list[Step], max_journals: int
) -> None:
    store, ends = RacingStore(), dict[str, int]()
    topic = Topic(2, store)
    subscriber = Subscriber(topic, max_journals)
    for step in before:
        step(topic, subscriber, ends)
    store.happenings = (step(topic, subscriber, ends) for step in meanwhile)
    while len(subscriber.seen) < 200:
        seen = len(subscriber.seen)
        subscriber.take(2)
        if len(subscriber.seen) == seen:
            break
    rest, store.happenings = store.happenings, iter(())
    list(rest)
    subscriber.take()
    subscriber.check()
