"""A relay goes by the markers of its own outbox, and by those of no other."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from inorder.kafka.shard_log import require_delivered
from inorder.model.errors import ConfigurationError, PermanentError
from inorder.relay.drain import DrainStrategy
from inorder.relay.leadership.lease import NoLease
from inorder.relay.loop import RelayLoop
from inorder.relay.marker import Marker, MarkerCodec, end_term
from inorder.relay.options import LoopOptions
from inorder.relay.stores.ports import Exceeding
from tests.conftest import Eventually
from tests.fakes.log import MemoryBroker, MemoryShardLog
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.unit.relay.test_simulation import HASTE

MARKER = Marker(((1, 3), (7, 7)), 4, Exceeding(7, 5, "too-large", "it has 2 MB", parks=True))


def codec(outbox: str, *, is_restored: bool = False) -> MarkerCodec:
    return MarkerCodec(lambda: outbox, group="orders", is_restored=is_restored)


def committed_by(outbox: str, marker: Marker = MARKER) -> bytes:
    """What a new outbox commits as its marker."""
    owner = codec(outbox)
    assert owner.decode(None) == Marker()
    return owner.encode(marker)


@pytest.mark.parametrize("marker", [MARKER, Marker()])
def test_the_next_owner_of_the_same_outbox_finds_the_marker_as_it_was(marker: Marker) -> None:
    assert codec("a").decode(committed_by("a", marker)) == replace(marker, outbox="a")


def test_another_outbox_is_refused_before_anything_is_purged_and_the_marker_stays() -> None:
    committed = committed_by("a")
    with pytest.raises(ConfigurationError, match="'orders' are those of another outbox") as caught:
        codec("b").decode(committed)
    assert "inorder relay reshard --restored" in (caught.value.hint or "")
    assert codec("a").decode(committed) == replace(MARKER, outbox="a")


def test_one_that_is_said_to_be_restored_goes_on_and_signs_anew() -> None:
    restored = codec("b", is_restored=True)
    restored.decode(committed_by("a"))
    committed = restored.encode(Marker())
    assert codec("b").decode(committed) == Marker(outbox="b")
    with pytest.raises(ConfigurationError):
        codec("a").decode(committed)


def test_a_marker_of_an_earlier_version_is_taken_at_its_word() -> None:
    assert codec("a").decode(MARKER.encode()) == MARKER


def test_the_bytes_on_the_topic_are_those_of_earlier_versions_and_more() -> None:
    found = committed_by("a", Marker(((1, 3), (7, 7)), 4))
    assert found == b'{"version": 2, "outbox": "a", "published": "1-3,7", "floor": 4}'


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"[1]", b'"text"', b"1"])
def test_what_cannot_be_read_is_refused_whoever_wrote_it(damaged: bytes) -> None:
    with pytest.raises(PermanentError, match="unknown what was published"):
        codec("a").decode(damaged)


def test_a_marker_that_is_taken_over_and_published_again_is_signed_once() -> None:
    committed = committed_by("a")
    for _ in range(3):
        owner = codec("a")
        committed = owner.encode(owner.decode(committed))
    assert committed.count(b'"outbox"') == 1
    assert Marker.decode(committed) == replace(MARKER, outbox="a")


def test_ending_a_term_keeps_the_name_of_the_outbox() -> None:
    broker = MemoryBroker()
    log = MemoryShardLog(broker)
    log.take_over()
    require_delivered(log.publish((), committed_by("a")))
    end_term(lambda: MemoryShardLog(broker))
    assert Marker.decode(broker.marker) == replace(MARKER, outbox="a")


def test_without_a_name_markers_carry_none_and_all_are_accepted() -> None:
    unnamed = MarkerCodec()
    assert unnamed.decode(committed_by("a")).outbox == "a"
    assert unnamed.encode(MARKER) == MARKER.encode()


def loop_of(outbox: MemoryOutbox, broker: MemoryBroker, name: str, stop: threading.Event) -> RelayLoop:
    options = LoopOptions(stop=stop, pace=HASTE, markers=codec(name))
    strategy = DrainStrategy(outbox, batch_size=5)
    return RelayLoop(strategy, MemoryExceeded(outbox), MemoryShardLog(broker), NoLease(), options)


def test_a_loop_names_its_outbox_in_every_marker_and_one_of_another_outbox_purges_and_sends_nothing(
    eventually: Eventually,
) -> None:
    broker, stop = MemoryBroker(), threading.Event()
    ours, theirs = MemoryOutbox(), MemoryOutbox()
    for outbox in (ours, theirs):
        outbox.insert("t", "t", b"k", b"v")
        outbox.end("t")
    thread = threading.Thread(target=loop_of(ours, broker, "a", stop).run)
    thread.start()
    eventually(lambda: ours.count() == 0)
    stop.set()
    thread.join()
    assert Marker.decode(broker.marker).outbox == "a"
    with pytest.raises(ConfigurationError, match="another outbox"):
        loop_of(theirs, broker, "b", threading.Event()).run()
    assert (theirs.count(), len(broker.records)) == (1, 1)
