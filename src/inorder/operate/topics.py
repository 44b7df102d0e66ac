"""Topics for an operator: creating them, switching them to the next generation, and how far a switch is."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from inorder.relay.marker import end_term
from inorder.relay.parts import RelayParts
from inorder.relay.stores.ports import Registration
from inorder.relay.stores.registry import SqlRegistry
from inorder.settings.outbox import TopicSettings
from inorder.topics.desired import ChangeSettings, CreateTopic, DesiredTopic, FoundTopic, TopicAction, plan_actions
from inorder.topics.failover import Failover, OnStep
from inorder.topics.generations import Generation, Pointers, TopicState
from inorder.topics.pauses import Pause, PauseKind
from inorder.topics.stores.generations import SqlPointers, SqlTopicGenerations
from inorder.topics.stores.kafka_topics import KafkaTopicCluster, KafkaTopicMirror, MirrorReader
from inorder.topics.switch import Insight, Wanted, behind, next_action


class TopicAdmin:
    """The topics of `[topics.NAME]` and their generations."""

    def __init__(
        self,
        topics: Mapping[str, TopicSettings],
        generations: SqlTopicGenerations,
        pointers: SqlPointers,
        relay: RelayParts,
        registry: SqlRegistry,
    ) -> None:
        """`pointers` are those of the pipelines; `relay` and `registry` end the terms of relays during a switch."""
        self._topics = topics
        self._generations = generations
        self._pointers = pointers
        self._relay = relay
        self._registry = registry
        self._properties = relay.settings.kafka.properties

    def fail_over(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        to: str | None = None,
        on_step: OnStep = lambda _step: None,
    ) -> TopicState:
        """Switches a topic to its next generation, or completes an interrupted switch."""
        with self._failover(on_step) as failover:
            state = failover.run(topic, Wanted(partitions, to))
        for generation in state.generations:
            self._pointers.close_generation(generation)
        return state

    def cancel_fail_over(self, topic: str) -> TopicState | None:
        """Cancels a switch; None where the topic never had one."""
        with self._failover(lambda _step: None) as failover:
            return failover.cancel(topic)

    def plan(self) -> list[TopicAction]:
        """What `[topics.NAME]` wants and the cluster does not have."""
        cluster = KafkaTopicCluster(self._properties)
        current = {state.topic: state.current for state in self._generations.read_all()}
        wanted = [_desired(name, topic) for name, topic in self._topics.items() if _is_described(topic)]
        return [action for each in wanted for action in _plan(cluster, each, current.get(each.topic))]

    def apply(self) -> list[TopicAction]:
        """Creates missing topics and sets what differs; returns all actions, also those left to the operator."""
        cluster = KafkaTopicCluster(self._properties)
        planned = self.plan()
        for action in planned:
            match action:
                case CreateTopic(target, replication, config):
                    cluster.make_topic(target, config, replication)
                case ChangeSettings(name, config):
                    cluster.change_settings(name, config)
                case _:
                    pass
        return planned

    def status(self, topic: str | None = None) -> list[dict[str, Any]]:
        """The generations of each topic that was ever switched, or of one of them.

        Read from the database, the mirror, the cluster and the pointers of the pipelines.
        """
        states = [state for state in self._generations.read_all() if topic in (None, state.topic)]
        found = [(state, _read_pointers(self._pointers, state)) for state in states]
        with closing(MirrorReader(self._properties)) as mirror:
            mirrored = {state.topic: state.epoch for state in mirror.read_all()}
        cluster = KafkaTopicCluster(self._properties)
        return [
            _status_fields(state, Insight(mirrored.get(state.topic, 0), _count_late(cluster, state), by_pipeline))
            for state, by_pipeline in found
        ]

    @contextmanager
    def _failover(self, on_step: OnStep) -> Iterator[Failover]:
        with closing(KafkaTopicMirror(self._properties)) as mirror:
            yield Failover(
                self._generations,
                mirror,
                KafkaTopicCluster(self._properties),
                self._end_relay_terms,
                wait=threading.Event().wait,
                on_step=on_step,
            )

    def _end_relay_terms(self) -> None:
        """Ends the term of every shard of every relay that is registered in the database."""
        for registration in self._registry.read_all():
            if self._is_fenced(registration):
                for shard in range(registration.shards):
                    end_term(partial(self._relay.fenced_log, registration.setup, shard))

    def _is_fenced(self, registration: Registration) -> bool:
        """Whether a fence stops its instances; that of other groups is unknown, and a needless fence is safe."""
        relay = self._relay.relay
        is_unfenced = registration.group == relay.group and relay.delivery == "at-least-once"
        return registration.strategy != "topic-lock" and not is_unfenced


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


def _read_pointers(pointers: SqlPointers, state: TopicState) -> dict[str, dict[str, Pointers]]:
    found: dict[str, dict[str, Pointers]] = defaultdict(dict)
    for generation in state.generations:
        for pipeline, by_partition in pointers.of_topic(generation.topic).items():
            found[pipeline][generation.topic] = by_partition
    return dict(found)


def _count_late(cluster: KafkaTopicCluster, state: TopicState) -> dict[int, int]:
    """Late records of closed generations that still exist; a topic may have been deleted since it was applied."""
    return {
        generation.number: cluster.late(generation.topic, generation.ends)
        for generation in state.generations
        if generation.ends is not None and cluster.partitions(generation.topic) is not None
    }


def _status_fields(state: TopicState, insight: Insight) -> dict[str, Any]:
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


def list_topics(
    uses: Mapping[str, Collection[str]],
    switched: Sequence[Mapping[str, Any]],
    partitions: Mapping[str, int],
    pauses: Sequence[Pause],
) -> list[dict[str, Any]]:
    """Every topic that something uses, that was ever switched or that is paused, as JSON has it.

    `uses` are the names by what uses them, `switched` what `TopicAdmin.status` returns, and `partitions` those of every
    topic of the cluster. A topic that does not exist has None.
    """
    states = {each["topic"]: each for each in switched}
    paused = {each.name: str(each) for each in pauses if each.kind is PauseKind.TOPIC}
    keys = [each.name.partition("/")[0] for each in pauses if each.kind is PauseKind.KEY]
    names = {*states, *paused, *keys, *(name for found in uses.values() for name in found)}
    listed = []
    for name in sorted(names):
        state = states.get(name, {"kafka_topic": name, "generation": 0, "phase": "", "target": ""})
        listed.append(
            {
                "topic": name,
                "used_by": [use for use, found in uses.items() if name in found],
                "kafka_topic": state["kafka_topic"],
                "partitions": partitions.get(state["kafka_topic"]),
                **{field: state[field] for field in ("generation", "phase", "target")},
                "paused": paused.get(name, ""),
                "paused_keys": keys.count(name),
            }
        )
    return listed
