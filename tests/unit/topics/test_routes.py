"""A writer trusts its routes for half a second, and reads them behind its fence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from inorder.kafka.shard_log import Abandoned, Delivered, Delivery, Incomplete, require_delivered
from inorder.model.errors import (
    FencedError,
    KeyPausedError,
    TopicPausedError,
    TopicSwitchingError,
    TopicUnavailableError,
    TransientError,
    UnreachableError,
)
from inorder.model.message import OutboxRow
from inorder.model.partitioning import Partitioner
from inorder.topics.failover import GRACE_SECONDS
from inorder.topics.generations import Generation, Phase, Target, TopicState
from inorder.topics.pauses import NO_PAUSES, Pause, PauseKind, Pauses
from inorder.topics.routes import TRUSTED_SECONDS, RoutedShardLog, RoutedUnfencedLog, Routes, RouteTable, build_routes
from tests.fakes.log import failed

FIRST = TopicState("orders", (Generation(0, "orders", 4),), Phase.PREPARING, Target("orders.g1", 8))
CLOSED = replace(FIRST, phase=Phase.CLOSING)
MOVED = TopicState("orders", (Generation(0, "orders", 4, (1, 2, 3, 4)), Generation(1, "orders.g1", 8)))


@dataclass
class Told:
    """States that are changed by hand, and how often somebody asked."""

    states: list[TopicState] = field(default_factory=list)
    asked: int = 0
    now: float = 0.0
    is_away: bool = False
    pauses: Pauses = NO_PAUSES

    def read_all(self) -> Iterable[TopicState]:
        self.asked += 1
        if self.is_away:
            raise UnreachableError("No answer.")
        return list(self.states)

    def close(self) -> None: ...

    def routes(self) -> Routes:
        return Routes(self, lambda: self.pauses, clock=lambda: self.now)


@dataclass
class Log:
    """A log that notes where rows went."""

    sent: list[tuple[str, int]] = field(default_factory=list)
    fails: list[TransientError] = field(default_factory=list)
    in_doubt: frozenset[int] = frozenset()
    given_up: int = 0
    partitioners: dict[str, Partitioner] = field(default_factory=dict)

    def take_over(self) -> bytes | None:
        return b"marker"

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:  # noqa: ARG002 - the port's signature
        if self.fails:
            return replace(failed(self.fails.pop(0)), in_doubt=self.in_doubt, is_under_way=True)
        self.sent += [(row.topic, row.id) for row in rows]
        return Delivered()

    def give_up(self) -> Abandoned:
        self.given_up += 1
        return Abandoned(frozenset({1}), self.in_doubt)

    def close(self) -> None: ...


def row(number: int, topic: str = "orders") -> OutboxRow:
    return OutboxRow(number, topic, b"k", b"v", (), None, None)


@pytest.mark.parametrize(
    ("states", "target"), [([], "orders"), ([FIRST], "orders"), ([CLOSED], None), ([MOVED], "orders.g1")]
)
def test_a_topic_goes_by_its_name_until_it_is_closed_and_to_its_generation_afterwards(
    states: list[TopicState], target: str | None
) -> None:
    assert build_routes(states).of("orders") == target
    assert build_routes(states).of("payments") == "payments"


def test_routes_are_read_again_when_they_are_too_old_and_not_before() -> None:
    told = Told([FIRST])
    routes = told.routes()
    assert routes.current() == routes.current() == RouteTable()
    told.states, told.now = [MOVED], TRUSTED_SECONDS
    assert routes.current() == RouteTable()
    told.now += 0.01
    assert routes.current().of("orders") == "orders.g1"
    assert told.asked == 2


def test_fresh_routes_are_read_however_young_the_old_ones_are() -> None:
    told = Told([FIRST])
    routes = told.routes()
    routes.current()
    told.states = [CLOSED]
    assert routes.fresh().of("orders") is None


def test_a_switch_waits_longer_than_routes_are_trusted() -> None:
    assert GRACE_SECONDS >= TRUSTED_SECONDS + 1.0, "and a batch under way looks once a second"


def test_a_new_term_reads_the_routes_behind_its_fence() -> None:
    told = Told([FIRST])
    log = RoutedShardLog(Log(), routes := told.routes())
    routes.current()
    told.states = [MOVED]
    assert log.take_over() == b"marker"
    assert routes.current().of("orders") == "orders.g1"


def test_rows_go_to_the_generation_of_their_topic_and_keep_their_partitioner() -> None:
    inner = Log(partitioners={"orders": Partitioner.ID_MODULO})
    log = RoutedShardLog(inner, Told([MOVED]).routes())
    require_delivered(log.publish([row(1), row(2, "payments")], b""))
    assert inner.sent == [("orders.g1", 1), ("payments", 2)]
    assert inner.partitioners["orders.g1"] is Partitioner.ID_MODULO


def test_rows_of_a_closed_topic_wait_and_nothing_of_the_batch_is_sent() -> None:
    inner = Log()
    log = RoutedShardLog(inner, Told([CLOSED]).routes())
    with pytest.raises(TopicSwitchingError, match="its messages wait") as refused:
        require_delivered(log.publish([row(1, "payments"), row(2)], b""))
    assert refused.value.topic == "orders"
    assert "inorder topics status orders" in refused.value.hint
    assert inner.sent == []
    require_delivered(log.publish([row(1, "payments")], b""))
    assert inner.sent == [("payments", 1)]


def test_a_closed_topic_is_asked_for_at_each_try_and_followed_at_once() -> None:
    told, inner = Told([CLOSED]), Log()
    log = RoutedShardLog(inner, told.routes())
    with pytest.raises(TopicSwitchingError):
        require_delivered(log.publish([row(1)], b""))
    told.states = [MOVED]
    require_delivered(log.publish([row(1)], b""))
    assert inner.sent == [("orders.g1", 1)], "however young the answer is that it was closed"
    require_delivered(log.publish([row(2)], b""))
    assert told.asked == 3, "an open topic is not asked for"


def test_a_closed_topic_stays_closed_where_nobody_answers_and_others_go_on() -> None:
    told, inner = Told([CLOSED]), Log()
    routes = told.routes()
    routes.current()
    told.is_away = True
    log = RoutedShardLog(inner, routes)
    with pytest.raises(TopicSwitchingError):
        require_delivered(log.publish([row(1)], b""))
    require_delivered(log.publish([row(2, "payments")], b""))
    assert inner.sent == [("payments", 2)]


def test_callers_hear_of_topics_by_the_names_they_know() -> None:
    away = TopicUnavailableError("orders.g1", "It is gone.")
    log = RoutedShardLog(Log(fails=[away]), Told([MOVED]).routes())
    with pytest.raises(TopicUnavailableError) as refused:
        require_delivered(log.publish([row(1)], b""))
    assert refused.value.topic == "orders"


def test_other_errors_pass_as_they_are() -> None:
    log = RoutedShardLog(Log(fails=[FencedError("Overtaken.")]), Told([MOVED]).routes())
    with pytest.raises(FencedError):
        require_delivered(log.publish([row(1)], b""))
    log.close()


def test_a_batch_under_way_is_given_up_when_its_topic_is_closed() -> None:
    told, inner = Told([FIRST]), Log(fails=[TransientError("Not acknowledged yet.")])
    log = RoutedUnfencedLog(inner, told.routes())
    with pytest.raises(TransientError, match="Not acknowledged"):
        require_delivered(log.publish([row(1), row(2)], b""))
    told.states, told.now = [CLOSED], 1.0
    moved = log.publish([row(1), row(2)], b"")
    with pytest.raises(TransientError, match="switched meanwhile"):
        require_delivered(moved)
    assert isinstance(moved, Incomplete)
    assert (moved.delivered, inner.given_up, inner.sent) == (frozenset({1}), 1, [])
    with pytest.raises(TopicUnavailableError):
        require_delivered(log.publish([row(2)], b""))
    told.states, told.now = [MOVED], 2.0
    require_delivered(log.publish([row(2)], b""))
    assert inner.sent == [("orders.g1", 2)]


def test_a_batch_under_way_is_waited_for_while_only_other_topics_move() -> None:
    told, inner = Told([FIRST]), Log(fails=[TransientError("Not acknowledged yet.")], in_doubt=frozenset({7}))
    log = RoutedUnfencedLog(inner, told.routes())
    late = log.publish([row(1, "payments")], b"")
    assert isinstance(late, Incomplete)
    assert isinstance(late.error, TransientError)
    told.states, told.now = [MOVED], 1.0
    require_delivered(log.publish([row(1, "payments")], b""))
    assert (inner.sent, inner.given_up, late.in_doubt) == ([("payments", 1)], 0, frozenset({7}))


def test_without_routes_nothing_new_is_sent_but_what_was_sent_is_waited_for() -> None:
    told, inner = Told([FIRST]), Log(fails=[TransientError("Not acknowledged yet.")])
    log = RoutedUnfencedLog(inner, told.routes())
    with pytest.raises(TransientError, match="Not acknowledged"):
        require_delivered(log.publish([row(1)], b""))
    told.is_away, told.now = True, 1.0
    require_delivered(log.publish([row(1)], b""))
    assert inner.sent == [("orders", 1)]
    with pytest.raises(TransientError, match="The Kafka topic for messages of 'orders' is not known: No answer"):
        require_delivered(log.publish([row(2)], b""))
    assert inner.sent == [("orders", 1)]


PAUSED = Pauses((Pause(PauseKind.TOPIC, "orders", "an incident", "ann", "2026-01-01"),))


def test_rows_of_a_paused_topic_wait_with_the_reason_and_others_are_sent() -> None:
    told, inner = Told([MOVED], pauses=PAUSED), Log()
    log = RoutedShardLog(inner, told.routes())
    with pytest.raises(TopicPausedError, match=r"is paused: an incident \(ann, 2026-01-01\)") as refused:
        require_delivered(log.publish([row(1, "payments"), row(2)], b""))
    assert (refused.value.topic, inner.sent) == ("orders", [])
    assert "inorder resume topic orders" in refused.value.hint
    require_delivered(log.publish([row(1, "payments")], b""))
    told.pauses = NO_PAUSES
    require_delivered(log.publish([row(2)], b""))
    assert inner.sent == [("payments", 1), ("orders.g1", 2)], "however young the answer is that it was paused"


def test_rows_of_paused_keys_wait_together_and_others_are_sent() -> None:
    keys = [replace(PAUSED.rows[0], kind=PauseKind.KEY, name=name) for name in ("orders/k", "orders/a/b")]
    shard = replace(PAUSED.rows[0], kind=PauseKind.SHARD, name="1")
    told, inner = Told([MOVED], pauses=Pauses((*keys, shard))), Log()
    log = RoutedShardLog(inner, told.routes())
    wanted = [row(1)._replace(key=b"k"), row(2)._replace(key=b"free"), row(3)._replace(key=b"a/b")]
    with pytest.raises(KeyPausedError, match=r"2 keys are paused, .*: an incident \(ann, 2026-01-01\)") as refused:
        require_delivered(log.publish(wanted, b""))
    assert refused.value.keys == frozenset({("orders", b"k"), ("orders", b"a/b")})
    assert inner.sent == []
    require_delivered(log.publish([wanted[1], row(4, "payments")._replace(key=b"k")], b""))
    assert inner.sent == [("orders.g1", 2), ("payments", 4)]
    assert log.shard_pause(1) == "an incident (ann, 2026-01-01)"
    assert log.shard_pause(0) == ""


def test_a_table_of_the_same_name_pauses_no_topic() -> None:
    other = Pauses((replace(PAUSED.rows[0], kind=PauseKind.TABLE),))
    assert build_routes([], other).waiting == frozenset()


def test_a_batch_under_way_is_waited_for_when_its_topic_is_paused() -> None:
    told, inner = Told([]), Log(fails=[TransientError("Not acknowledged yet.")])
    log = RoutedUnfencedLog(inner, told.routes())
    with pytest.raises(TransientError, match="Not acknowledged"):
        require_delivered(log.publish([row(1)], b""))
    told.pauses, told.now = PAUSED, 1.0
    require_delivered(log.publish([row(1)], b""))
    assert (inner.sent, inner.given_up) == ([("orders", 1)], 0)
    with pytest.raises(TopicPausedError):
        require_delivered(log.publish([row(2)], b""))


def test_the_log_names_a_pause_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "inorder.topics")
    told = Told([], pauses=PAUSED)
    routes = told.routes()
    routes.fresh()
    routes.fresh()
    told.pauses = NO_PAUSES
    routes.fresh()
    assert caplog.messages == ["topics.paused", "topics.resumed"]
