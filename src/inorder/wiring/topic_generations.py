"""Generations of topics, from the settings: switching, copying, planning, and how it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from inorder.kafka.copying import Copier
from inorder.kafka.topic_cluster import KafkaTopicCluster
from inorder.kafka.topic_mirror import KafkaTopicMirror
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.partition import Partitioner
from inorder.ports.registry import Registration
from inorder.ports.topic_generations import Generation, Target, TopicState
from inorder.relay.fencing import end_term
from inorder.settings import Settings
from inorder.settings.topics import TopicSettings
from inorder.stores.opening import open_database
from inorder.stores.pointers import SqlPointers
from inorder.stores.registry import SqlRegistry
from inorder.stores.topic_generations import SqlTopicGenerations
from inorder.topics.desired import Action, Desired, Found, MakeIt, SetIt, actions
from inorder.topics.failover import Failover, OnStep
from inorder.topics.gate import is_drained
from inorder.topics.switch import Step, Wanted
from inorder.wiring.logs import fenced_log

NAME = "inorder topics"


def _ignore(_step: Step) -> None:
    """Nobody watches."""


def fail_over(
    settings: Settings, topic: str, *, partitions: int | None = None, to: str | None = None, on_step: OnStep = _ignore
) -> TopicState:
    """Switches a topic to its next generation, or ends a switch that was broken off."""
    with _failover(settings, on_step) as operator:
        return operator.run(topic, Wanted(partitions, to))


def cancel_fail_over(settings: Settings, topic: str) -> TopicState | None:
    """Gives a switch up; None where the topic never had one."""
    with _failover(settings, _ignore) as operator:
        return operator.cancel(topic)


@contextmanager
def _failover(settings: Settings, on_step: OnStep) -> Iterator[Failover]:
    properties = settings.kafka.properties
    with ExitStack() as opened:
        authority = opened.enter_context(closing(open_generations(settings)))
        mirror = opened.enter_context(closing(KafkaTopicMirror(properties)))
        yield Failover(
            authority,
            mirror,
            KafkaTopicCluster(properties),
            partial(end_relay_terms, settings),
            wait=threading.Event().wait,
            on_step=on_step,
        )


def open_generations(settings: Settings) -> SqlTopicGenerations:
    """The authority, in the database of the outbox."""
    return SqlTopicGenerations(open_database(settings.database.require_url(), NAME))


def end_relay_terms(settings: Settings) -> None:
    """Ends the term of every shard of every relay that is registered in the database."""
    with closing(SqlRegistry(open_database(settings.database.require_url(), NAME), settings.relay.table)) as registry:
        registered = registry.read_all()
    for found in registered:
        if _is_fenced(settings, found):
            for shard in range(found.shards):
                end_term(partial(fenced_log, settings, found.setup, shard))


def _is_fenced(settings: Settings, found: Registration) -> bool:
    """Whether a fence stops its instances; what others deliver we do not know, and a fence too many does no harm."""
    is_ours = found.group == settings.relay.group
    return found.strategy != "topic-lock" and not (is_ours and settings.relay.delivery == "at-least-once")


def plan_topics(settings: Settings) -> list[Action]:
    """What `[topics.NAME]` wants and the cluster does not have."""
    cluster = KafkaTopicCluster(settings.kafka.properties)
    with closing(open_generations(settings)) as authority:
        current = {state.topic: state.current for state in authority.read_all()}
    wanted = [_desired(name, topic) for name, topic in settings.topics.items() if _is_described(topic)]
    return [action for each in wanted for action in _plan(cluster, each, current.get(each.topic))]


def apply_topics(settings: Settings) -> list[Action]:
    """Makes missing topics and sets what differs; returns all actions, also those that only a person may take."""
    cluster = KafkaTopicCluster(settings.kafka.properties)
    planned = plan_topics(settings)
    for action in planned:
        match action:
            case MakeIt(target, replication, config):
                cluster.make_topic(target, config, replication)
            case SetIt(name, config):
                cluster.change_settings(name, config)
            case _:
                pass
    return planned


def _plan(cluster: KafkaTopicCluster, desired: Desired, current: Generation | None) -> Iterator[Action]:
    name = desired.topic if current is None else current.topic
    partitions = cluster.partitions(name)
    found = None if partitions is None else Found(name, partitions, cluster.topic_settings(name))
    return actions(desired, found, name)


def _is_described(topic: TopicSettings) -> bool:
    return topic.partitions is not None or topic.replication is not None or bool(topic.config)


def _desired(name: str, topic: TopicSettings) -> Desired:
    config = {key: _spelt(value) for key, value in topic.config.items()}
    return Desired(name, topic.partitions, topic.replication, config)


def _spelt(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def migrate_topic(
    settings: Settings, topic: str, *, to: str | None = None, go_on: Callable[[], bool] = lambda: True
) -> dict[str, int]:
    """Copies the generations of a topic into one Kafka topic, each after the one before; records by generation's topic.

    What was copied before is not copied again. The current generation is copied as far as it goes at the moment.
    """
    with closing(open_generations(settings)) as authority:
        state = authority.read(topic)
    if state is None:
        raise ConfigurationError(
            f"Topic {topic!r} has one generation only.", hint="`inorder topics failover` makes the next one."
        )
    destination = to or topic
    sources = sources_of(state, destination)
    _require_drained(settings, state, destination)
    _require(settings, destination, sources)
    partitioner = Partitioner(settings.topic(topic).partitioner)
    copied: dict[str, int] = {}
    for source in sources:
        copier = Copier(settings.kafka.properties, source.topic, destination, partitioner=partitioner)
        copied[source.topic] = copier.run(source.ends, go_on)
    return copied


def sources_of(state: TopicState, destination: str) -> Sequence[Generation]:
    """The generations to copy: all, or those behind the destination if it is one itself."""
    numbers = [generation.number for generation in state.generations if generation.topic == destination]
    if numbers and numbers[0] == state.current.number:
        raise ConfigurationError(
            f"{destination!r} is the current generation of topic {state.topic!r}; publishers write to it.",
            hint="Copy into the topic's first generation, which is the default, or name another topic with --to.",
        )
    return [generation for generation in state.generations if not numbers or generation.number > numbers[0]]


def _require_drained(settings: Settings, state: TopicState, destination: str) -> None:
    """A pipeline that reads the destination as a generation must be through with it, or it would read the copies."""
    closed = next((each for each in state.generations if each.topic == destination), None)
    if closed is None:
        return
    with closing(SqlPointers(open_database(settings.database.require_url(), NAME))) as pointers:
        found = pointers.of_topic(destination)
    late = [pipeline for pipeline, applied in found.items() if not is_drained(closed, applied)]
    if late:
        raise TransientError(
            f"The pipeline {late[0]!r} still reads {destination!r} as generation {closed.number} of {state.topic!r}.",
            hint="Copy when it is done (`inorder topics status`), or into another topic with --to.",
        )


def _require(settings: Settings, destination: str, sources: Sequence[Generation]) -> None:
    cluster = KafkaTopicCluster(settings.kafka.properties)
    if cluster.partitions(destination) is None:
        cluster.make(Target(destination, sources[-1].partitions), like=sources[-1].topic)
