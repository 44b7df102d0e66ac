"""How the generations of topics stand: what the database, the mirror, the cluster and the pipelines say of them."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import Any

from inorder.kafka.topic_cluster import KafkaTopicCluster
from inorder.kafka.topic_mirror import MirrorReader
from inorder.ports.topic_generations import Generation, Pointers, TopicState
from inorder.settings import Settings
from inorder.stores.opening import open_database
from inorder.stores.pointers import SqlPointers
from inorder.stores.topic_generations import SqlTopicGenerations
from inorder.topics.progress import Insight, behind, next_act


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
        "next": next_act(state, insight),
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
