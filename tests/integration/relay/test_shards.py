"""The shards of a table are shared by its instances; each key stays in order whoever carries it."""

from __future__ import annotations

import pytest

import inorder
from inorder.kafka.readers import read_back
from inorder.model.message import Message
from inorder.model.partitioning import shard_of
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.integration.relay.writing import Writers
from tests.selection import few

SHARDS = 4
ALL = set(range(SHARDS))


def key_in(topic: str, shard: int, shards: int = SHARDS) -> str:
    """Some key whose rows belong to the shard."""
    return next(key for key in map(str, range(1000)) if shard_of(topic, key.encode(), 0, shards) == shard)


def are_shared(*relays: inorder.Relay) -> bool:
    """Each shard has one owner, and nobody owns two more than another."""
    owned = [set(relay.leader_ids) for relay in relays]
    counts = [len(shards) for shards in owned]
    return set.union(*owned) == ALL and sum(counts) == SHARDS and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("leadership", few(["kafka", "database"], "kafka"))
def test_two_instances_share_the_shards_under_load_and_the_last_one_takes_all(
    bench: Bench, unique: str, eventually: Eventually, leadership: str
) -> None:
    settings = bench.settings(leadership=leadership, shards=SHARDS)
    first, second = inorder.Relay(settings), inorder.Relay(settings)
    with Writers(bench, unique) as writers, first:
        eventually(lambda: set(first.leader_ids) == ALL)
        with second:
            eventually(lambda: are_shared(first, second))
            eventually(lambda: second.published > 0)
            first.stop()
            eventually(lambda: set(second.leader_ids) == ALL)
            writers.stop()
            eventually(lambda: bench.count() == 0)
    verdict = writers.verdict()
    assert verdict.holds, verdict
    assert first.published + second.published == len(writers.committed)


@pytest.mark.full
def test_a_key_with_a_long_backlog_does_not_starve_other_shards(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    hot, calm = key_in(unique, 0, 2), key_in(unique, 1, 2)
    bench.publish(*(Message(unique, key=hot, value=str(number)) for number in range(20_000)))
    with inorder.Relay(bench.settings(leadership="none", shards=2, batch_size=5)) as relay:
        eventually(lambda: relay.published > 0)
        bench.publish(Message(unique, key=calm, value="calm"))
        eventually(lambda: calm.encode() in {record.key for record in read_back(bench.properties, unique)})
        assert bench.count() > 0, "the hot key was finished first"
    values = [record.value for record in read_back(bench.properties, unique) if record.key == hot.encode()]
    assert values == [str(number).encode() for number in range(len(values))]


@pytest.mark.full
def test_rows_written_while_all_shards_sleep_wake_the_owner_of_each(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    def is_asleep() -> bool:
        """Whether some shard has asked publishers to wake everybody, and none looks around."""
        with bench.connect() as connection:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),"
                " (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'inorder relay%'"
                " AND datname = current_database() AND state <> 'idle')"
            ).fetchone()
        return row == (1, 0)

    with inorder.Relay(bench.settings(leadership="none", shards=SHARDS)) as relay:
        eventually(lambda: set(relay.leader_ids) == ALL)
        for number in range(8):
            eventually(is_asleep)
            bench.publish(Message(unique, key=key_in(unique, number % SHARDS), value=str(number)))
            eventually(lambda: bench.count() == 0)
    assert {record.value for record in read_back(bench.properties, unique)} == {str(n).encode() for n in range(8)}
