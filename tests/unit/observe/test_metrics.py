"""What a reading becomes in Prometheus' text, and that no label grows without bound."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inorder.observe import metrics as metrics_module
from inorder.observe.metrics import OutboxReading, RelayMetrics, RelayReading, TopicReading

FULL = RelayReading(
    group="shop",
    is_running=True,
    is_leader=True,
    published=7,
    processed=9,
    exceeded=1,
    terms=2,
    in_flight=3,
    last_error="PostgreSQL: no answer from 10.0.0.7:5432 after 30 s.\nand more",
    breakers={"outbox": "open", "missing": "closed"},
    reloads={"applied": 1, "refused": 2},
    outbox=OutboxReading(
        1.5,
        {
            "waiting": 4,
            "oldest_seconds": 2.5,
            "newest_id": 40,
            "offset": 36,
            "missing": 2,
            "exceeded": 1,
            "parked_keys": 1,
        }
        | {"paused": 2, "workers": 3},
        (TopicReading("orders", 4, 2.5),),
    ),
)


def samples(reading: RelayReading) -> dict[tuple[str, ...], float]:
    """Name and labels but `group`, and the value."""
    found = {}
    for family in text_string_to_metric_families(RelayMetrics(lambda: reading).text().decode()):
        for sample in family.samples:
            if sample.name.startswith("inorder_"):
                labels = dict(sample.labels)
                assert labels.pop("group") == "shop"
                found[(sample.name, *labels.values())] = sample.value
    return found


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        (("inorder_relay_running",), 1),
        (("inorder_relay_is_leader",), 1),
        (("inorder_relay_published_total",), 7),
        (("inorder_relay_processed_total",), 9),
        (("inorder_relay_exceeded_total",), 1),
        (("inorder_relay_terms_total",), 2),
        (("inorder_relay_in_flight_events",), 3),
        (("inorder_relay_failing",), 1),
        (("inorder_relay_last_error_info", "PostgreSQL: no answer from #.#.#.#:# after # s."), 1),
        (("inorder_relay_breaker_state", "outbox", "open"), 1),
        (("inorder_relay_breaker_state", "outbox", "closed"), 0),
        (("inorder_relay_breaker_state", "outbox", "half-open"), 0),
        (("inorder_relay_breaker_state", "missing", "closed"), 1),
        (("inorder_relay_reloads_total", "refused"), 2),
        (("inorder_outbox_read_age_seconds",), 1.5),
        (("inorder_outbox_waiting_events",), 4),
        (("inorder_outbox_oldest_waiting_seconds",), 2.5),
        (("inorder_outbox_inserted_events",), 40),
        (("inorder_outbox_offset",), 36),
        (("inorder_outbox_missing_events",), 2),
        (("inorder_outbox_exceeded_events",), 1),
        (("inorder_outbox_parked_keys",), 1),
        (("inorder_outbox_paused",), 2),
        (("inorder_topic_waiting_events", "orders"), 4),
        (("inorder_topic_oldest_waiting_seconds", "orders"), 2.5),
    ],
)
def test_a_reading_is_told_in_full(sample: tuple[str, ...], value: float) -> None:
    assert samples(FULL)[sample] == value


def test_what_is_not_known_is_left_out() -> None:
    found = samples(RelayReading("shop"))
    assert found[("inorder_relay_running",)] == 0
    assert found[("inorder_relay_failing",)] == 0
    assert not [name for name, *_ in found if "outbox" in name or "topic" in name or "error" in name]


def test_every_metric_is_told_of_in_the_docstring() -> None:
    assert metrics_module.__doc__ is not None
    for name, *_ in samples(FULL):
        assert f"`{name}`" in metrics_module.__doc__ or f"`{name}{{" in metrics_module.__doc__, name


def test_errors_that_differ_in_numbers_only_are_one_series() -> None:
    texts = [f"Outbox row {number} was refused." for number in (1, 22, 333)]
    labels = {key for text in texts for key in samples(RelayReading("shop", last_error=text)) if "info" in key[0]}
    assert labels == {("inorder_relay_last_error_info", "Outbox row # was refused.")}


def test_the_process_is_measured_too() -> None:
    assert b"process_start_time_seconds" in RelayMetrics(lambda: FULL).text()
