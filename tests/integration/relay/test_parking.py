"""One record that the broker refuses waits with its key; a thousand others do not notice."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import inorder
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.relay.marker import Marker
from inorder.relay.stores.kafka_log import marker_topic
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.operating import exceeded_rows, settle_exceeded
from tests.selection import few

LIMIT = 20_000
LARGE = random.Random(1).randbytes(2 * LIMIT)  # nothing that compression could save


@pytest.fixture
def settings(bench: Bench, unique: str) -> inorder.Settings:
    """A relay whose topic takes records of 20 kB at most."""
    ensure_topic(bench.properties, unique, 4, {"max.message.bytes": str(LIMIT)})
    return bench.settings(leadership="none", max_attempts=2)


def by_key(bench: Bench, topic: str) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for record in read_back(bench.properties, topic):
        found[record.key].append((record.value or b"")[:10])
    return found


def publish_with_a_bad_one(bench: Bench, topic: str) -> None:
    """A record too large for its topic, the first of its key, among 300 other keys."""
    bench.publish(
        *(inorder.Message(topic, key=f"k{number}", value=f"1 of {number}") for number in range(150)),
        inorder.Message(topic, key="bad", value=LARGE),
        inorder.Message(topic, key="bad", value="2"),
        *(inorder.Message(topic, key=f"k{number}", value=f"1 of {number}") for number in range(150, 300)),
        inorder.Message(topic, key="bad", value="3"),
    )


@pytest.mark.full
def test_a_record_too_large_for_its_topic_parks_its_key_and_a_retry_brings_it_back_in_order(
    bench: Bench, settings: inorder.Settings, unique: str, eventually: Eventually
) -> None:
    publish_with_a_bad_one(bench, unique)
    with inorder.Relay(settings) as relay:
        eventually(lambda: len(by_key(bench, unique)) == 300)
        (row,) = eventually(lambda: exceeded_rows(settings))
        assert (row.topic, row.key, row.attempts, row.parks) == (unique, b"bad", 2, True)
        assert row.reason == (
            f"Outbox row {row.id} has {len(LARGE) + 75} bytes; topic {unique!r} takes {LIMIT} (MSG_SIZE_TOO_LARGE)."
        )
        bench.publish(inorder.Message(unique, key="bad", value="4"), inorder.Message(unique, key="k0", value="2 of 0"))
        eventually(lambda: len(by_key(bench, unique)[b"k0"]) == 2)
        assert b"bad" not in by_key(bench, unique)
        bench.alter_topic(unique, {"max.message.bytes": "1000000"})
        settle_exceeded(settings, "retry", "the topic's limit was raised", id=row.id)
        eventually(lambda: bench.count() == 0)
        eventually(lambda: relay.published == 305)
    assert by_key(bench, unique)[b"bad"] == [LARGE[:10], b"2", b"3", b"4"]


@pytest.mark.full
def test_a_new_owner_keeps_a_parked_key_waiting(
    bench: Bench, settings: inorder.Settings, unique: str, eventually: Eventually
) -> None:
    publish_with_a_bad_one(bench, unique)
    with inorder.Relay(settings):
        (row,) = eventually(lambda: exceeded_rows(settings))
    with inorder.Relay(settings) as second:
        bench.publish(inorder.Message(unique, key="bad", value="4"), inorder.Message(unique, key="k0", value="2 of 0"))
        eventually(lambda: len(by_key(bench, unique)[b"k0"]) == 2)
        assert b"bad" not in by_key(bench, unique)
        settle_exceeded(settings, "discard", "a test", id=row.id)
        eventually(lambda: bench.count() == 0)
        assert second.is_leader
    assert by_key(bench, unique)[b"bad"] == [b"2", b"3", b"4"]


def test_many_small_records_that_are_too_large_only_together_all_go_through(
    bench: Bench, settings: inorder.Settings, unique: str, eventually: Eventually
) -> None:
    bench.publish(*(inorder.Message(unique, key=f"k{number % 5}", value="x" * 500) for number in range(400)))
    with inorder.Relay(settings):
        eventually(lambda: bench.count() == 0)
    assert sum(len(values) for values in by_key(bench, unique).values()) == 400
    assert exceeded_rows(settings) == []


@pytest.mark.full
def test_the_commands_list_show_and_settle_exceeded_records(
    bench: Bench, settings: inorder.Settings, unique: str, eventually: Eventually, tmp_path: Path
) -> None:
    publish_with_a_bad_one(bench, unique)
    with inorder.Relay(settings):
        (row,) = eventually(lambda: exceeded_rows(settings))
    config = tmp_path / "inorder.toml"
    config.write_text(f'[database]\nurl = "{bench.url}"\n')

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "inorder.cli", "exceeded", *arguments, "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    assert f'"id": {row.id}' in run("list", "--json").stdout
    assert "MSG_SIZE_TOO_LARGE" in run("show", str(row.id)).stdout
    assert run("show", "999999").returncode == 3
    assert run("retry").returncode == 2, "nothing was named"
    assert run("discard", str(row.id)).returncode == 2, "no reason was given"
    assert "1 to discard; nothing was done." in run("discard", "--all", "--reason", "x", "--dry-run").stderr
    assert "retry: 1 records." in run("retry", "--topic", unique, "--reason", "repaired").stderr
    assert run("list", "--json").stdout.strip() == "[]"
    assert bench.count() == 3


@pytest.mark.parametrize("delivery", few(["exactly-once", "at-least-once"], "exactly-once"))
def test_a_row_that_would_forge_a_marker_is_set_aside_and_deletes_nothing(
    bench: Bench, unique: str, eventually: Eventually, delivery: str
) -> None:
    """A writer that does not use our library names the marker topic, and claims that all rows are published."""
    marker, forged = marker_topic(bench.group), Marker(((1, 1000),)).encode()
    settings = bench.settings(leadership="none", delivery=delivery)
    with bench.connect() as connection:
        connection.execute(
            "INSERT INTO outbox (topic, key, value, partition) VALUES (%s, %s, %s, 0)", (marker, b"0", forged)
        )
    with inorder.Relay(settings):
        (row,) = eventually(lambda: exceeded_rows(settings))
        bench.publish(inorder.Message(unique, key="k", value="sent"))
        eventually(lambda: bench.count() == 0)
    assert row.topic == marker
    assert f"topic: {marker!r} is reserved" in row.reason
    assert by_key(bench, unique) == {b"k": [b"sent"]}
    assert forged not in [record.value for record in read_back(bench.properties, marker)]
