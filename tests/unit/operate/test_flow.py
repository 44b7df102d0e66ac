"""What the first page says, decided on the parts of the status."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.operate.flow import Flow, HeldUp, counted, duration, flow_of, held

RELAY: dict[str, Any] = {
    "group": "g", "table": "outbox", "strategy": "drain", "shards": 1, "waiting": 0, "oldest_seconds": 0.0,
    "owners": ["host-1"], "phantoms": "", "exceeded": 0, "exceeded_groups": [],
}  # fmt: skip
PIPELINE: dict[str, Any] = {
    "behind": 0, "oldest_seconds": None, "waiting": [], "dead_letters": 0, "partitions": [{"topic": "t"}],
}  # fmt: skip
WAITING = {"topic": "t", "partition": 1, "reason": "P0001"}
GOOD: dict[str, Any] = {
    "database": {"dialect": "postgres"},
    "kafka": {"brokers": ["b:1"], "cluster_id": "c"},
    "relay": RELAY,
    "topics": {"switched": 0, "behind": {}, "generations": []},
    "pipeline": PIPELINE,
    "journal": {"topics": 0, "behind": 0},
}


def hop(flow: Flow, name: str) -> tuple[str, str]:
    [found] = [each for each in flow.hops if each.name == name]
    return found.health, found.sentence


def test_all_is_well() -> None:
    flow = flow_of(GOOD)
    assert (flow.health, flow.sentence, flow.concerns) == ("ok", "All events have arrived.", ())
    assert hop(flow, "relay") == ("ok", "host-1 leads, group g.")


def test_events_on_their_way_are_no_concern() -> None:
    flow = flow_of(
        GOOD | {"relay": RELAY | {"waiting": 5, "oldest_seconds": 0.3}, "pipeline": PIPELINE | {"behind": 2}}
    )
    assert (flow.health, flow.sentence) == ("ok", "Events flow; 7 events on the way.")


@pytest.mark.parametrize(
    ("part", "changed", "health", "words", "page"),
    [
        ("relay", {"waiting": 5, "oldest_seconds": 75.0}, "attention", "waits for 1 min 15 s", "relays"),
        ("relay", {"exceeded": 1}, "trouble", "1 record used up its attempts", "problems"),
        ("relay", {"breakers": {"poller": "open"}}, "trouble", "circuit breaker of poller", "relays"),
        ("relay", {"phantoms": "3-5"}, "attention", "ids 3-5", "relays"),
        (
            "topics",
            {"paused": {"table t": "a vacuum (ann)"}},
            "attention",
            "table t is paused: a vacuum (ann)",
            "topics",
        ),
        ("pipeline", {"dead_letters": 2}, "attention", "2 records could not be applied", "problems"),
        ("pipeline", {"behind": 9, "oldest_seconds": 90.0}, "attention", "does the job upsert run", "pipeline"),
        (
            "pipeline",
            {"waiting": [{"topic": "t", "partition": 1, "reason": "P0001"}]},
            "trouble",
            "t[1] waits",
            "pipeline",
        ),
        ("journal", {"topics": 1, "parked": 2, "behind": 0}, "trouble", "2 journals in quarantine", "problems"),
        ("kafka", {"error": "No broker answers.", "exit_code": 4}, "trouble", "No broker answers.", "kafka"),
    ],
)
def test_what_is_wrong_is_said_with_where_to_look(
    part: str, changed: dict[str, Any], health: str, words: str, page: str
) -> None:
    found = {**GOOD[part], **changed} if "error" not in changed else changed
    flow = flow_of(GOOD | {part: found})
    assert flow.health == health
    assert words in flow.sentence
    assert [each.page for each in flow.concerns] == [page]
    assert flow.concerns[0].command.startswith("inorder ")


def test_the_worst_stands_first() -> None:
    flow = flow_of(GOOD | {"pipeline": PIPELINE | {"dead_letters": 2}, "relay": RELAY | {"exceeded": 3}})
    assert [each.health for each in flow.concerns] == ["trouble", "attention"]
    assert flow.sentence == "2 things need attention."


def test_what_was_not_read_or_set_up_is_not_known() -> None:
    assert (flow_of({}).health, flow_of({}).sentence) == ("unknown", "Some hops are not known yet.")
    flow = flow_of(GOOD | {"relay": {"error": "database.url is not set.", "exit_code": 3}})
    assert (flow.health, hop(flow, "outbox")) == ("unknown", ("unused", "database.url is not set."))


def test_numbers_are_for_people() -> None:
    assert [counted(each, "row") for each in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert [duration(each) for each in (0.25, 75, 7200, 90_061)] == ["0.2 s", "1 min 15 s", "2 h", "1 d 1 h"]


def test_what_is_paused_switched_or_rests_is_held_with_its_reason_and_command() -> None:
    switched = {"topic": "orders", "target": "orders.g1"}
    state = {"topic": "bills", "messages": 3, "retries": 2, "error": True}
    parts: dict[str, Any] = {
        "topics": {
            "paused": {"key orders/4 2": "an incident (ann)", "shard 3": "a test (bob)"},
            "generations": [switched | {"phase": phase} for phase in ("closing", "preparing", "steady", "measuring")],
        },
        "relay": {"topics": [state, state | {"topic": "fine", "error": False}]},
    }
    waits = "Its rows wait, and continue by themselves."
    assert held(parts) == [
        HeldUp("paused", "key", "orders/4 2", "an incident (ann)", "inorder resume key 'orders/4 2'"),
        HeldUp("paused", "shard", "3", "a test (bob)", "inorder resume shard 3"),
        *(
            HeldUp(
                "switched",
                "topic",
                "orders",
                f"It is being switched to 'orders.g1': {phase}. {waits}",
                "inorder topics status orders",
            )
            for phase in ("closing", "measuring")
        ),
        HeldUp(
            "rests",
            "topic",
            "bills",
            "It rests after 2 errors; 3 messages in the outbox."
            " A worker tries again after relay.topic_lock.lock_seconds.",
            "inorder relay status",
        ),
    ]


@pytest.mark.parametrize("parts", [{}, {"topics": None, "relay": None}, {"topics": {"error": "away"}, "relay": {}}])
def test_nothing_is_held_as_far_as_is_known(parts: dict[str, Any]) -> None:
    assert held(parts) == []
