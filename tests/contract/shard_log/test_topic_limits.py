"""A topic that takes small batches only is learnt once; then no batch is too large, and a record that is gets named."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from inorder.kafka.admin import COMPACTED, Cluster, ensure_topic
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import Delivered, Incomplete, ShardLog, require_delivered
from inorder.kafka.topic_facts import size_of
from inorder.model.errors import FencedError, RejectedError, TransientError, UnknownOutcomeError
from inorder.model.message import OutboxRow
from inorder.relay.stores.kafka_log import marker_topic
from tests.conftest import Eventually
from tests.contract.shard_log.making import open_log, row
from tests.contract.shard_log.strict_broker import StrictKafka

LIMIT = 20_000
NOISE = random.Random(1)  # nothing that compression could save

both_on_kafka = pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])


@pytest.fixture
def small(properties: dict[str, object], unique: str) -> str:
    """A topic with a low limit."""
    ensure_topic(properties, unique, 1, {"max.message.bytes": str(LIMIT)})
    return unique


def opened(properties: dict[str, object], group: str, *, fenced: bool) -> ShardLog:
    log = open_log(properties, group, fenced=fenced)
    log.take_over()
    return log


def noise(topic: str, id: int, size: int = 100) -> OutboxRow:
    return row(topic, id, value=b"%d " % id + NOISE.randbytes(size))


def numbers(properties: dict[str, object], topic: str) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in read_back(properties, topic)]


def publish_all(log: ShardLog, rows: Sequence[OutboxRow]) -> list[TransientError | RejectedError]:
    """Publishes as the relay does: what is left again after an error, without a record that is named as guilty."""
    errors: list[TransientError | RejectedError] = []
    left = list(rows)
    for _ in range(30):
        match log.publish(left, b""):
            case Delivered():
                break
            case Incomplete(error, delivered, is_under_way=False):
                errors.append(error)
                guilty = error.row_id if isinstance(error, RejectedError) else None
                left = [each for each in left if each.id not in delivered and each.id != guilty]
    return errors


@pytest.mark.full
@both_on_kafka
def test_small_records_that_are_too_large_together_fail_once_and_not_again(
    properties: dict[str, object], small: str, fenced: bool
) -> None:
    """Each error is an aborted transaction, or a producer given up."""
    log = opened(properties, small, fenced=fenced)
    errors = []
    for first in range(0, 2000, 400):
        errors += publish_all(log, [noise(small, id) for id in range(first, first + 400)])
    assert [type(error) for error in errors] == [TransientError]
    assert "20000 bytes at most from now on" in errors[0].message
    assert numbers(properties, small) == list(range(2000))
    log.take_over()
    assert not publish_all(log, [noise(small, id) for id in range(2000, 2400)]), "a new term knows it still"
    log.close()


@pytest.mark.full
@both_on_kafka
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_record_above_the_limit_is_named_without_a_search(
    properties: dict[str, object], small: str, fenced: bool, compression: str
) -> None:
    log = opened({**properties, "compression.type": compression}, small, fenced=fenced)
    rows = [noise(small, id, size=2 * LIMIT if id == 100 else 100) for id in range(400)]
    *learnt, named = publish_all(log, rows)
    assert learnt
    assert all(isinstance(error, TransientError) for error in learnt), "a search would be refused without a row"
    assert isinstance(named, RejectedError)
    assert named.row_id == 100
    assert numbers(properties, small) == [id for id in range(400) if id != 100]
    with pytest.raises(RejectedError, match=f"row 100 has {size_of(rows[100])} bytes; topic '{small}' takes 20000"):
        require_delivered(log.publish([rows[100]], b""))
    log.close()


@pytest.mark.full
@both_on_kafka
@pytest.mark.parametrize("chosen", [{}, {"compression.type": "zstd"}, {"compression.codec": "gzip", "linger.ms": 1}])
def test_a_large_record_passes_where_the_chosen_compression_makes_it_small(
    properties: dict[str, object], small: str, fenced: bool, chosen: dict[str, object]
) -> None:
    log = opened({**properties, **chosen}, small, fenced=fenced)
    publish_all(log, [noise(small, id) for id in range(400)])
    require_delivered(log.publish([row(small, 400, value=b"400 " + b"x" * 2 * LIMIT)], b""))
    assert numbers(properties, small) == list(range(401))
    log.close()


@both_on_kafka
def test_a_limit_that_was_raised_lets_the_record_pass(
    properties: dict[str, object], small: str, fenced: bool, eventually: Eventually
) -> None:
    log = opened(properties, small, fenced=fenced)
    large = noise(small, 0, size=2 * LIMIT)
    for _ in range(2):
        with pytest.raises(RejectedError) as caught:
            require_delivered(log.publish([large], b""))
        assert caught.value.row_id == 0
    set_limit(properties, small, 10 * LIMIT)
    # The controller answers; the broker that is asked next learns it a moment later.
    shown = Cluster(properties)
    eventually(lambda: shown.topic_settings(small)["max.message.bytes"] == str(10 * LIMIT))
    require_delivered(log.publish([large], b""))
    assert numbers(properties, small) == [0]
    log.close()


def set_limit(properties: dict[str, object], topic: str, limit: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": str(properties["bootstrap.servers"])})
    admin.incremental_alter_configs([resource])[resource].result(60)


FORMS = {
    "plain": OutboxRow(1, "", b"k", b"", (), None, None),
    "no key": OutboxRow(1, "", None, b"", (), None, None),
    "long key": OutboxRow(1, "", b"k" * 300, b"", (), None, None),
    "headers": OutboxRow(1, "", b"k", b"", (("h", b"v" * 70), ("ü", None)), None, 1_700_000_000_000),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_broker_measures_a_record_as_we_do(properties: dict[str, object], small: str, form: str) -> None:
    log = opened({**properties, "compression.type": "none"}, small, fenced=False)
    almost = FORMS[form]._replace(topic=small, value=b"x" * (LIMIT - 1000))
    fitting = almost._replace(value=b"x" * (LIMIT - 1000 + LIMIT - size_of(almost)))
    assert size_of(fitting) == LIMIT
    require_delivered(log.publish([fitting], b""))
    with pytest.raises(RejectedError, match="MSG_SIZE_TOO_LARGE"):
        require_delivered(log.publish([fitting._replace(id=2, value=b"x" + (fitting.value or b""))], b""))
    log.close()


@pytest.fixture
def secretive(strict_kafka: StrictKafka, unique: str) -> str:
    """A topic with a low limit that we may not read."""
    ensure_topic(strict_kafka.as_nobody, unique, 1, {"max.message.bytes": str(LIMIT)})
    strict_kafka.allow_only(unique, AclOperation.DESCRIBE, AclOperation.WRITE)
    return unique


@pytest.mark.full
def test_where_limits_may_not_be_read_the_guilty_one_is_found_by_sending_singly(
    strict_kafka: StrictKafka, secretive: str
) -> None:
    log = opened(strict_kafka.as_relay, secretive, fenced=False)
    rows = [noise(secretive, id, size=2 * LIMIT if id == 100 else 100) for id in range(400)]
    first, second = publish_all(log, rows)
    assert isinstance(first, RejectedError)
    assert first.row_id is None
    assert isinstance(second, RejectedError)
    assert second.row_id == 100
    assert numbers(strict_kafka.as_nobody, secretive) == [id for id in range(400) if id != 100]
    log.close()


@pytest.mark.full
def test_where_limits_may_not_be_read_records_too_large_together_go_singly(
    strict_kafka: StrictKafka, secretive: str
) -> None:
    log = opened(strict_kafka.as_relay, secretive, fenced=False)
    (error,) = publish_all(log, [noise(secretive, id, size=2_000) for id in range(50)])
    assert isinstance(error, RejectedError)
    assert error.row_id is None
    assert numbers(strict_kafka.as_nobody, secretive) == list(range(50))
    log.close()


@pytest.mark.full
def test_where_limits_may_not_be_read_a_transaction_is_refused_without_a_name(
    strict_kafka: StrictKafka, secretive: str
) -> None:
    """The relay searches by halves then."""
    log = opened(strict_kafka.as_relay, secretive, fenced=True)
    rows = [noise(secretive, id) for id in range(400)]
    for _ in range(2):
        with pytest.raises(RejectedError) as caught:
            require_delivered(log.publish(rows, b""))
        assert caught.value.row_id is None
    publish_all(log, rows[:100])
    assert numbers(strict_kafka.as_nobody, secretive) == list(range(100))


def test_an_owner_overtaken_before_it_packs_smaller_commits_nothing_more(
    properties: dict[str, object], small: str
) -> None:
    log = opened(properties, small, fenced=True)
    rows = [noise(small, id) for id in range(400)]
    with pytest.raises(TransientError):
        require_delivered(log.publish(rows, b""))
    successor = opened(properties, small, fenced=True)
    require_delivered(successor.publish(rows[:1], b"successor"))
    with pytest.raises(FencedError, match="another owner has committed since"):
        require_delivered(log.publish(rows, b"stale"))
    assert numbers(properties, small) == [0]
    assert open_log(properties, small, fenced=True).take_over() == b"successor"


def test_an_owner_whose_marker_vanished_before_it_packs_smaller_has_to_take_over(
    properties: dict[str, object], small: str
) -> None:
    """Nobody can tell then whether its last batch was the last one."""
    log = opened(properties, small, fenced=True)
    require_delivered(log.publish([noise(small, 0)], b""))
    with pytest.raises(TransientError):
        require_delivered(log.publish([noise(small, id) for id in range(1, 401)], b""))
    admin = AdminClient({"bootstrap.servers": str(properties["bootstrap.servers"])})
    admin.delete_topics([marker_topic(small)])[marker_topic(small)].result(60)
    with pytest.raises(UnknownOutcomeError):
        require_delivered(log.publish([noise(small, 1)], b""))
    assert log.take_over() is None
    require_delivered(log.publish([noise(small, 1)], b""))
    assert numbers(properties, small) == [0, 1]


def test_a_marker_topic_that_takes_small_records_only_is_blamed_on_no_row(
    properties: dict[str, object], unique: str
) -> None:
    ensure_topic(properties, marker_topic(unique), 1, {**COMPACTED, "max.message.bytes": "2000"})
    ensure_topic(properties, unique, 1)
    log = opened(properties, unique, fenced=True)
    for _ in range(3):
        with pytest.raises(TransientError) as caught:
            require_delivered(log.publish([noise(unique, 0)], NOISE.randbytes(3000)))
        assert f"Raise max.message.bytes of {marker_topic(unique)!r}" in caught.value.hint
    require_delivered(log.publish([noise(unique, 0)], NOISE.randbytes(1000)))
    assert numbers(properties, unique) == [0]
    log.close()
