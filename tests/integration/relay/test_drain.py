"""What is committed reaches its topic once and in order; what is rolled back never does."""

from __future__ import annotations

from collections import defaultdict

import pytest

from inorder.kafka.readers import ReadRecord, read_back
from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import FencedError
from inorder.model.message import Message
from inorder.outbox import Outbox
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench


def records(bench: Bench, topic: str) -> list[ReadRecord]:
    return list(read_back(bench.properties, topic))


def by_key(found: list[ReadRecord]) -> dict[bytes | None, list[bytes | None]]:
    values: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for record in found:
        values[record.key].append(record.value)
    return values


def test_a_committed_message_arrives_as_it_was_written(bench: Bench, unique: str, eventually: Eventually) -> None:
    bench.relay()
    bench.publish(
        Message(unique, key="a", value={"id": 1}),
        Message(unique, key=b"\xff", value=b"\x00\x01", headers=[("h", "x"), ("b", b"\xfe"), ("n", None)]),
        Message(unique, key="a", value=None, timestamp=1_700_000_000_000),
        Message(unique, value=b"", partition=0),
    )
    eventually(lambda: bench.count() == 0)
    found = records(bench, unique)
    assert {(record.key, record.value) for record in found} == {
        (b"a", b'{"id":1}'),
        (b"\xff", b"\x00\x01"),
        (b"a", None),
        (None, b""),
    }
    assert next(r for r in found if r.key == b"\xff").headers == (("h", b"x"), ("b", b"\xfe"), ("n", None))
    assert next(r for r in found if r.value is None).timestamp_ms == 1_700_000_000_000


def test_a_rolled_back_message_is_never_published(bench: Bench, unique: str, eventually: Eventually) -> None:
    bench.relay()
    with bench.connect() as connection:
        Outbox().publish(connection, Message(unique, key="lost", value="no"))
        connection.rollback()
    bench.publish(Message(unique, key="kept", value="yes"))
    eventually(lambda: bench.count() == 0)
    assert [record.key for record in records(bench, unique)] == [b"kept"]


def test_a_transaction_that_commits_after_later_ids_were_published_is_still_delivered(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    bench.relay()
    with bench.connect() as late:
        Outbox().publish(late, Message(unique, key="late", value="first id"))
        for number in range(20):
            bench.publish(Message(unique, key="k", value=str(number)))
        eventually(lambda: len(records(bench, unique)) == 20)
        late.commit()
        eventually(lambda: len(records(bench, unique)) == 21)
    assert by_key(records(bench, unique))[b"late"] == [b"first id"]


def test_records_of_a_key_keep_their_order_over_many_batches(bench: Bench, unique: str, eventually: Eventually) -> None:
    bench.publish(*(Message(unique, key=str(i % 7), value=str(i)) for i in range(5000)))
    bench.relay(batch_size=300)
    eventually(lambda: bench.count() == 0)
    found = by_key(records(bench, unique))
    assert sum(map(len, found.values())) == 5000
    for values in found.values():
        numbers = [int(value or b"-1") for value in values]
        assert numbers == sorted(set(numbers))


def test_a_second_owner_fences_the_first_and_nothing_is_doubled(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    first = bench.relay(batch_size=10)
    bench.publish(*(Message(unique, key="k", value=str(i)) for i in range(500)))
    eventually(lambda: first.loop.progress.published > 0)
    second = bench.relay(batch_size=10)
    eventually(lambda: second.loop.progress.is_owner)
    bench.publish(*(Message(unique, key="k", value=str(i)) for i in range(500, 700)))
    eventually(lambda: bench.count() == 0)
    assert [int(r.value or b"") for r in records(bench, unique)] == list(range(700))
    first.thread.join(60)
    assert isinstance(first.error, FencedError)


@pytest.mark.parametrize("published_before_death", [True, False])
def test_a_new_owner_purges_what_the_marker_names_and_sends_nothing_twice(
    bench: Bench, unique: str, eventually: Eventually, published_before_death: bool
) -> None:
    """The owner dies between commit and purge, or before the commit; the next one knows which."""
    bench.publish(Message(unique, key="k", value="1"), Message(unique, key="k", value="2"))
    shard, store = bench.shard(), bench.store()
    from inorder.relay.marker import Marker, ranges
    from inorder.relay.stores.ports import Scan

    shard.take_over()
    rows = store.read(Scan(above=0), 10).rows
    if published_before_death:
        require_delivered(shard.publish(rows, Marker(ranges([row.id for row in rows])).encode()))
    shard.close()
    store.close()
    bench.relay()
    eventually(lambda: bench.count() == 0)
    assert [record.value for record in records(bench, unique)] == [b"1", b"2"]
