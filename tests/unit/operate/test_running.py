"""What runs: owners of shards since they were seen, and figures of a process by its metrics."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inorder.database.database import open_database
from inorder.engines.job_status import JobMetrics, PipelineReading
from inorder.observe.endpoint import Endpoint
from inorder.observe.metrics import RelayMetrics, RelayReading, read_served, samples_in
from inorder.operate.running import OwnerTimes, job_figures, relay_figures
from inorder.operate.schema import schema_statements
from inorder.operate.status import relay_part, short
from inorder.relay.parts import RelayParts
from inorder.relay.status import RelayAdmin, read_breakers
from inorder.relay.stores.sql_lease import SqlLease, SqlMembership
from inorder.settings import Settings

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RELAY = RelayReading("shop", True, True, 34, 34, 5, 2, 12, "Kafka is away.", {"outbox": "open"})


def test_a_shard_has_its_owner_since_the_change_was_seen() -> None:
    now = AT
    times = OwnerTimes(lambda: now)
    assert [row["since"] for row in times.note(["a", "a"], [1, 1])] == [None, None], "nothing is known of before"
    now += timedelta(seconds=5)
    second = times.note(["a", "b"], [1, 2])
    assert [(row["owner"], row["term"], row["since"]) for row in second] == [
        ("a", 1, None),
        ("b", 2, now.isoformat()),
    ]
    changed = now.isoformat()
    now += timedelta(seconds=5)
    assert [row["since"] for row in times.note(["a", "b"], [1, 2])] == [None, changed]
    assert times.note(["a", "b"], [1, 3])[1]["since"] == now.isoformat(), "the same instance in a new term"


def test_the_figures_of_a_relay_are_those_of_its_group() -> None:
    samples = samples_in(RelayMetrics(lambda: RELAY).text().decode())
    assert relay_figures(samples, "shop") == {
        "in_flight": 12,
        "published": 34,
        "exceeded": 5,
        "terms": 2,
        "leads": True,
        "error": "Kafka is away.",
    }
    assert relay_figures(samples, "other") is None
    assert relay_figures(None, "shop") is None


def test_the_figures_of_a_job_are_means_of_its_slices_and_refusals_by_code() -> None:
    reading = PipelineReading(
        job="upsert",
        is_running=True,
        phases={"decode": 1.25},
        measures={"orders": {"refused/not-json": 3}},
    )
    samples = samples_in(JobMetrics(lambda: reading).text().decode())
    [found] = job_figures(samples)
    assert (found["job"], found["running"], found["refused"]) == ("upsert", True, {"not-json": 3})
    assert (found["phases"], found["slices"], found["slice_seconds"]) == ({"decode": 1.25}, 0, None)
    page = (
        'inorder_pipeline_slice_seconds_count{job="upsert",topic="a"} 1\n'
        'inorder_pipeline_slice_seconds_sum{job="upsert",topic="a"} 0.1\n'
        'inorder_pipeline_slice_seconds_count{job="upsert",topic="b"} 1\n'
        'inorder_pipeline_slice_seconds_sum{job="upsert",topic="b"} 0.3\n'
        'inorder_pipeline_slice_records_sum{job="upsert",topic="b"} 40\n'
    )
    [sliced] = job_figures(samples_in(page))
    assert (sliced["slices"], sliced["slice_seconds"], sliced["slice_records"]) == (2, 0.2, 20.0)
    assert job_figures(None) == []


def test_what_a_process_serves_is_read_and_what_does_not_answer_is_none() -> None:
    assert read_served(None) is None
    endpoint = Endpoint(("127.0.0.1", 0), lambda: "", RelayMetrics(lambda: RELAY).text)
    endpoint.start()
    try:
        assert relay_figures(read_served(endpoint.address), "shop") is not None
        assert read_breakers(endpoint.address, "shop") == {"outbox": "open"}
    finally:
        endpoint.stop()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    assert (read_served(address), read_breakers(address, "shop")) == (None, None)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outbox.db"


def test_the_status_has_owner_and_term_of_each_shard_and_the_instances(url: str) -> None:
    settings = Settings.load(None, database={"url": url}, relay={"group": "g", "leadership": "database", "shards": 2})
    parts = RelayParts(settings)
    database = open_database(url, "test")
    database.install(schema_statements(settings, "native", "sqlite"))
    for name in ("a", "b"):
        SqlMembership(open_database(url, "test"), group="g", instance=name, seconds=60.0).beat()
    assert SqlLease(open_database(url, "test"), name="g.1", owner="b", seconds=60.0).acquire()
    part = relay_part(RelayAdmin(parts, database), asks_kafka=False)
    assert part["instances"] == ["a", "b"]
    assert part["shard_owners"] == [
        {"shard": 0, "owner": None, "term": 0, "since": None},
        {"shard": 1, "owner": "b", "term": 1, "since": None},
    ]
    assert "shard_owners" not in short(part)
