"""What a job's reading becomes in Prometheus' text."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inorder.engines.job_status import JobMetrics, LagReading, PipelineReading
from inorder.engines.measures import BOUNDS, MeasureTally
from inorder.engines.slice_work import Measures
from inorder.engines.survey import Backlog


def measures() -> Measures:
    """One append and one delete, a second old, with all that is measured besides."""
    tally = MeasureTally()
    for name, number in {"records": 2, "bytes": 90, "events": 10, "forks": 1, "parked": 1, "quarantined": 3}.items():
        tally.add(name, number)
    for kind in ("append", "delete"):
        tally.took(f"replication/{kind}", 1_500_000)
        tally.took(f"delivery/{kind}", 1_000_000)
    tally.took("round", 500_000)
    tally.had("round_records", 2)
    tally.took("store/carry_out", 4_000)
    tally.add_labels("version", {"1.2.0": 2})
    tally.add("expiry/day")
    tally.took("slice", 250_000)
    tally.had("slice_records", 7)
    tally.add("refused/no-record-key", 4)
    tally.add("unknown/colour", 3)
    return tally.take()


FULL = PipelineReading(
    job="replicate",
    is_running=True,
    records={"journal": {"applied": 2, "replayed": 1}},
    offsets={("journal", 3): 17},
    phases={"read": 1.5},
    last_slice_age=0.5,
    lag=LagReading(
        4.0,
        Backlog(
            {("journal", 3): 8},
            undecided={("journal", 3): 5},
            oldest_seconds={("journal", 3): 2.5},
            stale={("journal", 3): 19},
            dead_letters={("upsert:messages", "not-json"): 6},
        ),
    ),
    restarts={("journal", 3): 2, ("", -1): 1},
    measures={"journal": measures()},
    waiting={("journal", 3): 61.0},
)


def samples(reading: PipelineReading) -> dict[frozenset[str], float]:
    """Name and labels, in whatever order, and the value."""
    return {
        frozenset((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(JobMetrics(lambda: reading).text().decode())
        for sample in family.samples
        if sample.name.startswith("inorder_")
    }


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        (("inorder_pipeline_running", "replicate"), 1),
        (("inorder_pipeline_records_total", "replicate", "journal", "applied"), 2),
        (("inorder_pipeline_records_total", "replicate", "journal", "replayed"), 1),
        (("inorder_pipeline_next_offset", "replicate", "journal", "3"), 17),
        (("inorder_pipeline_phase_seconds_total", "replicate", "read"), 1.5),
        (("inorder_pipeline_last_slice_age_seconds", "replicate"), 0.5),
        (("inorder_pipeline_lag_records", "replicate", "journal", "3"), 8),
        (("inorder_pipeline_lag_age_seconds", "replicate"), 4),
        (("inorder_pipeline_undecided_offsets", "replicate", "journal", "3"), 5),
        (("inorder_pipeline_oldest_record_age_seconds", "replicate", "journal", "3"), 2.5),
        (("inorder_pipeline_stale_records", "replicate", "journal", "3"), 19),
        (("inorder_pipeline_dead_letters", "replicate", "upsert:messages", "not-json"), 6),
        (("inorder_pipeline_restarts_total", "replicate", "journal", "3"), 2),
        (("inorder_pipeline_restarts_total", "replicate", ""), 1),
        (("inorder_pipeline_slice_seconds_sum", "replicate", "journal"), 0.25),
        (("inorder_pipeline_slice_records_sum", "replicate", "journal"), 7),
        (("inorder_pipeline_unknown_fields_total", "replicate", "journal", "colour"), 3),
        (("inorder_pipeline_refused_records_total", "replicate", "journal", "no-record-key"), 4),
        (("inorder_replicator_records_total", "journal"), 2),
        (("inorder_replicator_bytes_total", "journal"), 90),
        (("inorder_replicator_events_total", "journal"), 10),
        (("inorder_replicator_forks_total", "journal"), 1),
        (("inorder_replicator_parked_journals_total", "journal"), 1),
        (("inorder_replicator_quarantined_records_total", "journal"), 3),
        (("inorder_replicator_version_records_total", "journal", "1.2.0"), 2),
        (("inorder_replicator_expiry_journals_total", "journal", "day"), 1),
        (("inorder_replicator_replication_latency_seconds_count", "journal", "append"), 1),
        (("inorder_replicator_replication_latency_seconds_sum", "journal", "delete"), 1.5),
        (("inorder_replicator_replication_latency_seconds_bucket", "journal", "append", "1.0"), 0),
        (("inorder_replicator_replication_latency_seconds_bucket", "journal", "append", "2.5"), 1),
        (("inorder_replicator_replication_latency_seconds_bucket", "journal", "append", "+Inf"), 1),
        (("inorder_replicator_delivery_latency_seconds_bucket", "journal", "append", "1.0"), 1),
        (("inorder_replicator_round_seconds_sum", "journal"), 0.5),
        (("inorder_replicator_round_records_sum", "journal"), 2),
        (("inorder_replicator_round_records_bucket", "journal", "3.0"), 1),
        (("inorder_journal_replica_latency_seconds_sum", "journal", "carry_out"), 0.004),
    ],
)
def test_a_reading_is_told_in_full(sample: tuple[str, ...], value: float) -> None:
    assert samples(FULL)[frozenset(sample)] == value


def test_what_is_not_known_is_left_out() -> None:
    found = samples(PipelineReading("upsert"))
    assert found == {frozenset(("inorder_pipeline_running", "upsert")): 0}


def test_buckets_are_sums_as_prometheus_wants_them() -> None:
    found = samples(FULL)
    name = "inorder_replicator_replication_latency_seconds"
    buckets = [value for labels, value in found.items() if {f"{name}_bucket", "append"} <= labels]
    assert (len(buckets), buckets) == (len(BOUNDS) + 1, sorted(buckets))
    assert buckets[-1] == found[frozenset((f"{name}_count", "journal", "append"))]


def test_the_process_is_measured_too() -> None:
    assert b"process_start_time_seconds" in JobMetrics(lambda: FULL).text()


def test_slices_of_a_table_are_no_journals() -> None:
    tally = MeasureTally()
    tally.took("slice", 1_000)
    found = samples(PipelineReading("upsert", measures={"orders": tally.take()}))
    names = {name for labels in found for name in labels}
    assert "inorder_pipeline_slice_seconds_count" in names
    assert not [name for name in names if name.startswith("inorder_replicator")]
