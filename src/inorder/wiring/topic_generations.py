"""Generations of topics, from the settings: switching and planning."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from inorder.kafka.topic_cluster import KafkaTopicCluster
from inorder.kafka.topic_mirror import KafkaTopicMirror
from inorder.ports.registry import Registration
from inorder.ports.topic_generations import Generation, TopicState
from inorder.relay.fencing import end_term
from inorder.settings import Settings
from inorder.settings.topics import TopicSettings
from inorder.stores.opening import open_database
from inorder.stores.registry import SqlRegistry
from inorder.stores.topic_generations import SqlTopicGenerations
from inorder.topics.desired import Action, Desired, Found, MakeIt, SetIt, actions
from inorder.topics.failover import Failover, OnStep
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
