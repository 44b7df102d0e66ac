"""Generations of topics, from the settings: switching and planning."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from inorder.database.database import open_database
from inorder.relay.marker import end_term
from inorder.relay.stores.opening import fenced_log
from inorder.relay.stores.ports import Registration
from inorder.relay.stores.registry import SqlRegistry
from inorder.settings import Settings
from inorder.settings.outbox import TopicSettings
from inorder.topics.desired import ChangeSettings, CreateTopic, DesiredTopic, FoundTopic, TopicAction, plan_actions
from inorder.topics.failover import Failover, OnStep
from inorder.topics.generations import Generation, Pointers, TopicState
from inorder.topics.stores.generations import NAME, SqlPointers, SqlTopicGenerations, open_generations
from inorder.topics.stores.kafka_topics import KafkaTopicCluster, KafkaTopicMirror, MirrorReader
from inorder.topics.switch import Insight, Step, Wanted, behind, next_action


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


def plan_topics(settings: Settings) -> list[TopicAction]:
    """What `[topics.NAME]` wants and the cluster does not have."""
    cluster = KafkaTopicCluster(settings.kafka.properties)
    with closing(open_generations(settings)) as authority:
        current = {state.topic: state.current for state in authority.read_all()}
    wanted = [_desired(name, topic) for name, topic in settings.topics.items() if _is_described(topic)]
    return [action for each in wanted for action in _plan(cluster, each, current.get(each.topic))]


def apply_topics(settings: Settings) -> list[TopicAction]:
    """Makes missing topics and sets what differs; returns all actions, also those that only a person may take."""
    cluster = KafkaTopicCluster(settings.kafka.properties)
    planned = plan_topics(settings)
    for action in planned:
        match action:
            case CreateTopic(target, replication, config):
                cluster.make_topic(target, config, replication)
            case ChangeSettings(name, config):
                cluster.change_settings(name, config)
            case _:
                pass
    return planned


def _plan(cluster: KafkaTopicCluster, desired: DesiredTopic, current: Generation | None) -> Iterator[TopicAction]:
    name = desired.topic if current is None else current.topic
    partitions = cluster.partitions(name)
    found = None if partitions is None else FoundTopic(name, partitions, cluster.topic_settings(name))
    return plan_actions(desired, found, name)


def _is_described(topic: TopicSettings) -> bool:
    return topic.partitions is not None or topic.replication is not None or bool(topic.config)


def _desired(name: str, topic: TopicSettings) -> DesiredTopic:
    config = {key: _spelt(value) for key, value in topic.config.items()}
    return DesiredTopic(name, topic.partitions, topic.replication, config)


def _spelt(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# How the generations of topics stand: what the database, the mirror, the cluster and the pipelines say of them.


def generations_status(settings: Settings, topic: str | None = None) -> list[dict[str, Any]]:
    """What `inorder topics status` tells: each topic that was ever switched, or one of them."""
    with closing(open_database(settings.database.require_url(), "inorder status")) as database:
        states = [state for state in SqlTopicGenerations(database).read_all() if topic in (None, state.topic)]
        pointers = SqlPointers(database)
        found = [(state, _pointers(pointers, state)) for state in states]
    with closing(MirrorReader(settings.kafka.properties)) as mirror:
        mirrored = {state.topic: state.epoch for state in mirror.read_all()}
    cluster = KafkaTopicCluster(settings.kafka.properties)
    return [
        _shown(state, Insight(mirrored.get(state.topic, 0), _late(cluster, state), by_pipeline))
        for state, by_pipeline in found
    ]


def _pointers(pointers: SqlPointers, state: TopicState) -> dict[str, dict[str, Pointers]]:
    found: dict[str, dict[str, Pointers]] = defaultdict(dict)
    for generation in state.generations:
        for pipeline, by_partition in pointers.of_topic(generation.topic).items():
            found[pipeline][generation.topic] = by_partition
    return dict(found)


def _late(cluster: KafkaTopicCluster, state: TopicState) -> dict[int, int]:
    """Of closed generations that are still there; a topic may have been deleted since it was applied."""
    return {
        generation.number: cluster.late(generation.topic, generation.ends)
        for generation in state.generations
        if generation.ends is not None and cluster.partitions(generation.topic) is not None
    }


def _shown(state: TopicState, insight: Insight) -> dict[str, Any]:
    return {
        "topic": state.topic,
        "phase": str(state.phase),
        "generation": state.current.number,
        "kafka_topic": state.current.topic,
        "target": "" if state.target is None else state.target.topic,
        "epoch": state.epoch,
        "mirrored_epoch": insight.mirrored_epoch,
        "behind": behind(state, insight),
        "next": next_action(state, insight),
        "generations": [_generation(each, insight) for each in state.generations],
    }


def _generation(generation: Generation, insight: Insight) -> dict[str, Any]:
    return {
        "generation": generation.number,
        "kafka_topic": generation.topic,
        "partitions": generation.partitions,
        "state": "closed" if generation.is_closed else "open",
        "ends": list(generation.ends or ()),
        "late": insight.late.get(generation.number, 0),
    }
