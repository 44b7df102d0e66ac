"""The topic of notices: reading it, and writing false notices to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Producer

from inorder.journal.stores.kafka_log import KafkaTail
from inorder.journal.stores.kafka_notices import OffsetNotice, parse_notice
from inorder.kafka.admin import Cluster


def all_notices(properties: dict[str, object], topic: str) -> list[OffsetNotice]:
    """Every notice that lies on the topic, in the order in which they came; none where there is no topic."""
    extents = Cluster(properties).extents(topic)
    if extents is None:
        return []
    end, found, seen = extents[0].end, list[OffsetNotice](), 0
    with closing(KafkaTail(properties, topic)) as tail:
        tail.start({0: 0})
        while seen < end:
            for record in tail.poll(1.0).get(0, ()):
                seen = record.offset + 1
                notice = parse_notice(record.key, record.value)
                assert notice is not None
                found.append(notice)
    return found


def newest(notices: Sequence[OffsetNotice]) -> dict[int, int]:
    """What is left of one topic's notices when all is compacted, by partition."""
    return {notice.place[1]: notice.offset for notice in notices}


def publish(properties: dict[str, object], topic: str, *notices: OffsetNotice) -> None:
    """Says what may not be so."""
    producer = Producer(dict(properties))
    for notice in notices:
        producer.produce(topic, notice.value(), notice.key(), partition=0)
    assert producer.flush(60) == 0
