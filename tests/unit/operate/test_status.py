"""The status of all parts: read at once, within a bound, with one verdict."""

from __future__ import annotations

import socket
import threading
from typing import cast

from inorder.app import App
from inorder.kafka.admin import probe
from inorder.model.errors import UnreachableError
from inorder.operate.status import Part, pipeline_part, read_together, verdict
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
from inorder.settings import Settings


def refuse() -> Part:
    raise UnreachableError("Kafka at broker:1 cannot be reached: connection refused.")


def test_a_part_that_never_answers_is_named_and_does_not_hide_the_others() -> None:
    over = threading.Event()

    def hang() -> Part:
        over.wait()
        return {}

    try:
        found = read_together({"relay": lambda: {"waiting": 1}, "journal": hang, "topics": refuse}, seconds=0.2)
    finally:
        over.set()
    assert found["relay"] == {"waiting": 1}
    assert found["journal"] == {"error": "timed out: no answer within 0.2 s.", "exit_code": 4}
    assert found["topics"]["exit_code"] == 4


def test_parts_are_read_at_the_same_time() -> None:
    meeting = threading.Barrier(3)

    def meet() -> Part:
        return {"met": meeting.wait(30) >= 0}

    assert read_together(dict.fromkeys("abc", meet)) == {name: {"met": True} for name in "abc"}


def test_a_reason_that_several_parts_share_is_said_once() -> None:
    parts = read_together({"topics": refuse, "pipeline": refuse, "relay": lambda: {"waiting": 0}})
    reason = "Kafka at broker:1 cannot be reached: connection refused."
    assert verdict(parts) == f"topics, pipeline cannot be read: {reason}"


def test_brokers_are_away_only_if_none_accepts_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as closed:
        up, down = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, closed))
        closed.close()
        assert probe(f"{down}, {up}", 10) is None
        assert probe(f"SASL_SSL://{up}", 10) is None
        away = probe(down, 10)
    assert away is not None
    assert "connection refused" in away.message


def test_without_kafka_nothing_that_needs_it_is_tried_and_the_verdict_names_it_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = f"127.0.0.1:{closed.getsockname()[1]}"
    with App(Settings.load(None, kafka={"bootstrap.servers": down}, database={"url": "sqlite://"})) as app:
        found = app.status()
    assert {name for name, part in found.items() if "connection refused" in part.get("error", "")} == {
        "topics",
        "pipeline",
        "journal",
    }
    assert verdict(found).count("connection refused") == 1


def test_without_kafka_the_flow_names_it_at_every_hop_that_needs_it_and_tries_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = f"127.0.0.1:{closed.getsockname()[1]}"
    with App(Settings.load(None, kafka={"bootstrap.servers": down}, database={"url": "sqlite://"})) as app:
        flow = app.flow()
    assert {hop.name for hop in flow.hops if "connection refused" in hop.sentence} == {"kafka", "pipeline", "journal"}


class _NoLetters:
    def groups(self) -> list[object]:
        return []


def test_a_topic_that_was_deleted_leaves_its_pointer_and_the_part_can_be_read() -> None:
    partitions = [{"next_offset": 7, "behind": 3}, {"next_offset": 5, "behind": None}]
    found = pipeline_part({"partitions": partitions, "behind": 3}, cast("DeadLetterAdmin", _NoLetters()))
    assert (found["ends"], found["dead_letters"]) == (15, 0)
