"""The marker topic has a partition for every shard, also where it was made for fewer."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # the stubs do not re-export it

from inorder.kafka import readers
from inorder.kafka.admin import COMPACTED, Cluster, ensure_compacted_topic, ensure_topic
from inorder.kafka.errors import CLIENT_LOG
from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import TransientError, UnknownOutcomeError
from inorder.relay.stores.kafka_lease import KafkaLeases, leader_topic
from inorder.relay.stores.kafka_log import KafkaShardLog, marker_topic
from tests.conftest import Eventually
from tests.contract.shard_log.making import row
from tests.contract.shard_log.strict_broker import StrictKafka


@pytest.mark.full
def test_more_shards_give_the_marker_topic_more_partitions(properties: dict[str, object], unique: str) -> None:
    first = KafkaShardLog(properties, group=unique)
    first.take_over()
    require_delivered(first.publish([row(unique, 1)], b"shard 0 of 1"))
    logs = [KafkaShardLog(properties, group=unique, shard=shard, shards=3) for shard in range(3)]
    assert [log.take_over() for log in logs] == [b"shard 0 of 1", None, None], "no marker is lost by it"
    assert Cluster(properties).partitions(marker_topic(unique)) == 3
    for id, log in enumerate(logs, start=2):
        require_delivered(log.publish([row(unique, id)], b"shard %d of 3" % (id - 2)))
    fresh = [KafkaShardLog(properties, group=unique, shard=shard, shards=3) for shard in range(3)]
    assert [log.take_over() for log in fresh] == [b"shard 0 of 3", b"shard 1 of 3", b"shard 2 of 3"]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_fewer_shards_take_no_partition_away(
    properties: dict[str, object], unique: str, partitions: int, eventually: Eventually
) -> None:
    for wanted in (3, partitions):
        ensure_compacted_topic(properties, unique, wanted)
        eventually(lambda: Cluster(properties).partitions(unique) == 3)
    found = Cluster(properties).topic_settings(unique)
    assert {name: found[name] for name in COMPACTED} == COMPACTED
    assert Cluster(properties).replicas(unique) == 1


@pytest.mark.full
def test_a_relay_needs_no_permission_to_create_topics_that_exist(
    strict_kafka: StrictKafka, unique: str, eventually: Eventually
) -> None:
    own = (marker_topic(unique), leader_topic(unique), unique)
    for topic in own:
        ensure_topic(strict_kafka.as_nobody, topic, 2)
        strict_kafka.allow_only(topic, AclOperation.READ, AclOperation.WRITE)
    leases = KafkaLeases(strict_kafka.as_relay, group=unique, owner="a", shards=2)
    with strict_kafka.without_create():
        eventually(lambda: cannot_create(strict_kafka, f"{unique}.other"))
        log = KafkaShardLog(strict_kafka.as_relay, group=unique, shard=1, shards=2)
        assert log.take_over() is None
        require_delivered(log.publish([row(unique, 1)], b"published"))
        assert log.take_over() == b"published"
        eventually(leases.lease(1).acquire)
        leases.release(1)


def cannot_create(broker: StrictKafka, topic: str) -> bool:
    try:
        ensure_topic(broker.as_relay, topic, 1)
    except TransientError as error:
        return "AUTHORIZATION_FAILED" in error.message
    broker.delete(topic)
    return False


def test_a_foreign_transaction_that_hangs_hides_no_marker(
    properties: dict[str, object], unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed records see nothing behind it. An owner that believed them would publish rows again."""
    monkeypatch.setattr(readers, "SETTLED_SECONDS", 0.1)
    owner = KafkaShardLog(properties, group=unique)
    owner.take_over()
    require_delivered(owner.publish([row(unique, 1)], b"first"))
    foreign = Producer({**properties, "transactional.id": f"{unique}.foreign"}, logger=CLIENT_LOG)
    foreign.init_transactions(60)
    foreign.begin_transaction()
    foreign.produce(marker_topic(unique), b"", b"0", partition=0)
    assert foreign.flush(60) == 0
    require_delivered(owner.publish([row(unique, 2)], b"second"))
    successor = KafkaShardLog(properties, group=unique)
    with pytest.raises(TransientError, match=f"transaction is open in {marker_topic(unique)}/0"):
        successor.take_over()
    with pytest.raises(UnknownOutcomeError):
        successor.publish([row(unique, 2)], b"again")
    foreign.abort_transaction(60)
    assert successor.take_over() == b"second"
