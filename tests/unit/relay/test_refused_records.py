"""A loop that meets a record the broker refuses: its key waits, all others go on, and nothing overtakes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from inorder.kafka.shard_log import Delivery, Incomplete, require_delivered
from inorder.model.errors import FencedError, RejectedError, TransientError
from inorder.model.message import OutboxRow
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.marker import MARKER_BYTES, Marker, prove
from inorder.relay.options import LoopOptions, Policy
from inorder.relay.stores.ports import Exceeding
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.unit.relay.running import World, running
from tests.unit.relay.test_simulation import HASTE


class Strict(MemoryShardLog):
    """A broker that refuses one value until the test makes it accept; it may or may not say which row it was."""

    def __init__(self, broker: MemoryBroker, *, names_row: bool = True) -> None:
        super().__init__(broker)
        self.relents = threading.Event()
        self.refusals = 0
        self._tells = names_row

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        bad = next((row for row in rows if row.value == b"bad"), None)
        if bad is not None and not self.relents.is_set():
            self.refusals += 1
            return Incomplete(RejectedError("The value is refused.", row_id=bad.id if self._tells else None))
        return super().publish(rows, marker)


@dataclass
class Scene:
    """One loop against a strict broker, on a thread that ends with the test."""

    outbox: MemoryOutbox
    exceeded: MemoryExceeded
    broker: MemoryBroker
    strict: Strict
    loop: RelayLoop

    def values(self, key: bytes | None = None) -> list[bytes | None]:
        return [row.value for row in self.broker.records if key is None or row.key == key]


@contextmanager
def scene(policy: Policy, *, names_row: bool = True, batch_size: int = 50) -> Iterator[Scene]:
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    exceeded, strict = MemoryExceeded(outbox), Strict(broker, names_row=names_row)
    for number in range(20):
        outbox.insert("t", "t", b"other%d" % number, b"fine")
    for value in (b"good", b"bad", b"behind", b"last"):
        outbox.insert("t", "t", b"k", value)
    outbox.end("t")
    pace = replace(HASTE, blocked=0.002)
    loop = RelayLoop(
        DrainStrategy(outbox, batch_size=batch_size),
        exceeded,
        strict,
        NoLease(),
        LoopOptions(stop=stop, max_attempts=3, policy=lambda _topic: policy, pace=pace),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield Scene(outbox, exceeded, broker, strict, loop)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("names_row", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_a_bad_record_parks_its_key_and_nothing_else(names_row: bool, batch_size: int, eventually: Eventually) -> None:
    with scene("park", names_row=names_row, batch_size=batch_size) as found:
        eventually(lambda: found.exceeded.rows)
        eventually(lambda: found.values().count(b"fine") == 20)
        assert found.values(b"k") == [b"good"]
        assert found.exceeded.rows[22][1].attempts == 3
        found.outbox.insert("more", "t", b"k", b"later")
        found.outbox.insert("more", "t", b"new", b"fine too")
        found.outbox.end("more")
        eventually(lambda: b"fine too" in found.values())
        assert found.values(b"k") == [b"good"], "what comes later waits as well"


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_a_retried_record_goes_before_all_that_waited_for_it(batch_size: int, eventually: Eventually) -> None:
    with scene("park", batch_size=batch_size) as found:
        eventually(lambda: found.exceeded.rows)
        found.strict.relents.set()
        found.exceeded.retry(22)
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"bad", b"behind", b"last"]
    assert found.loop.progress.exceeded == 1


def test_a_discarded_record_lets_its_key_go_on_without_it(eventually: Eventually) -> None:
    with scene("park") as found:
        eventually(lambda: found.exceeded.rows)
        found.exceeded.discard(22)
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"behind", b"last"]


def test_the_policy_skip_sets_the_record_aside_and_goes_on(eventually: Eventually) -> None:
    with scene("skip") as found:
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"behind", b"last"]
    assert list(found.exceeded.rows) == [22]


def test_the_policy_block_keeps_everything_waiting_loudly_until_the_record_is_taken(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with scene("block", batch_size=1) as found:
        eventually(lambda: found.strict.refusals > 4)
        assert found.values(b"k") == [b"good"]
        assert not found.exceeded.rows
        found.strict.relents.set()
        eventually(lambda: found.outbox.count() == 0)
    assert found.values(b"k") == [b"good", b"bad", b"behind", b"last"]
    assert any("relay.blocked" in record.getMessage() for record in caplog.records)


def start_owner(
    outbox: MemoryOutbox, exceeded: MemoryExceeded, broker: MemoryBroker, stop: threading.Event
) -> threading.Thread:
    """A relay that owns the shard until `stop` is set."""
    options = LoopOptions(stop=stop, pace=HASTE)
    loop = RelayLoop(DrainStrategy(outbox, batch_size=5), exceeded, MemoryShardLog(broker), NoLease(), options)
    thread = threading.Thread(target=loop.run)
    thread.start()
    return thread


def test_an_owner_that_dies_after_deciding_leaves_the_move_to_its_successor(eventually: Eventually) -> None:
    """The marker is committed and the row not yet moved: the next owner reads the decision and carries it out."""
    outbox, broker = MemoryOutbox(), MemoryBroker()
    exceeded = MemoryExceeded(outbox)
    id = outbox.insert("t", "t", b"k", b"bad")
    outbox.insert("t", "t", b"k", b"behind")
    outbox.end("t")
    dead = MemoryShardLog(broker)
    dead.take_over()
    marker = Marker((), 0, Exceeding(id, 5, "RECORD-001", "too large", parks=True))
    require_delivered(dead.publish((), marker.encode()))
    stop = threading.Event()
    thread = start_owner(outbox, exceeded, broker, stop)
    eventually(lambda: exceeded.rows)
    outbox.insert("u", "t", b"other", b"fine")
    outbox.end("u")
    eventually(lambda: len(broker.records) == 1)
    stop.set()
    thread.join()
    assert [row.value for row in broker.records] == [b"fine"]
    assert outbox.count() == 1


def test_a_row_put_back_while_no_relay_runs_is_not_set_aside_again_by_an_old_decision(eventually: Eventually) -> None:
    with scene("park") as found:
        eventually(lambda: found.exceeded.rows)
        eventually(lambda: found.values().count(b"fine") == 20)
    found.exceeded.retry(22)
    assert Marker.decode(found.broker.marker).exceeding is None
    stop = threading.Event()
    loop = RelayLoop(
        DrainStrategy(found.outbox, batch_size=50),
        found.exceeded,
        MemoryShardLog(found.broker),
        NoLease(),
        LoopOptions(stop=stop, pace=HASTE),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    eventually(lambda: found.outbox.count() == 0)
    stop.set()
    thread.join()
    assert found.values(b"k") == [b"good", b"bad", b"behind", b"last"]


def test_a_decision_about_a_row_is_not_carried_out_on_another_one_that_has_got_its_id(eventually: Eventually) -> None:
    """The database went back between the decision and its execution, and has given the id out again."""
    outbox, broker, stop = MemoryOutbox(), MemoryBroker(), threading.Event()
    exceeded = MemoryExceeded(outbox)
    id = outbox.insert("t", "t", b"k", b"another")
    outbox.end("t")
    decision = Exceeding(id, 5, "RECORD-001", "too large", parks=True)
    bad = OutboxRow(id, "t", b"k", b"bad", (), None, None)
    broker.marker = Marker((), 0, decision, proofs=(), exceeding_proof=prove([bad])[0]).encode()
    thread = start_owner(outbox, exceeded, broker, stop)
    eventually(lambda: outbox.count() == 0)
    stop.set()
    thread.join()
    assert [row.value for row in broker.records] == [b"another"]
    assert exceeded.rows == {}


def test_an_owner_that_is_fenced_before_its_decision_is_committed_moves_nothing() -> None:
    outbox, broker = MemoryOutbox(), MemoryBroker()
    exceeded = MemoryExceeded(outbox)
    outbox.insert("t", "t", b"k", b"bad")
    outbox.end("t")

    class Overtaken(MemoryShardLog):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            if rows:
                return Incomplete(RejectedError("No.", row_id=rows[0].id))
            MemoryShardLog(broker).take_over()
            return super().publish(rows, marker)

    options = LoopOptions(stop=threading.Event(), max_attempts=1, pace=HASTE)
    with pytest.raises(FencedError):
        RelayLoop(DrainStrategy(outbox, batch_size=5), exceeded, Overtaken(broker), NoLease(), options).run()
    assert exceeded.rows == {}
    assert outbox.count() == 1


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_a_row_is_set_aside_however_long_the_reason_of_its_refusal_is(strategy: str, eventually: Eventually) -> None:
    """The decision travels in a marker, which the broker would refuse for ever."""

    class Verbose(Strict):
        def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
            if len(marker) > MARKER_BYTES:
                return Incomplete(TransientError("The marker is too large."))
            match super().publish(rows, marker):
                case Incomplete(RejectedError() as error):
                    return Incomplete(RejectedError(f"{error.message} {1_200_000 * 'ÿ'}", row_id=error.row_id))
                case delivery:
                    return delivery

    world = World()
    world.commit(("t", b"k", b"bad"), ("t", b"k", b"behind"), ("t", b"other", b"fine"))
    with running(world, strategy=strategy, log=Verbose(world.broker)):
        eventually(lambda: world.exceeded.rows)
    ((_, exceeding),) = world.exceeded.rows.values()
    assert exceeding.reason.startswith("The value is refused.")
    assert len(exceeding.reason) <= 2000
    assert world.sent() == [b"fine"]
