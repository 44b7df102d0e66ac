"""Measurements of journals become Prometheus text, in one registry for any number of journals."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from inorder.journal.measuring import JournalMetrics, journal_metrics
from inorder.journal.reading.head_cache import HeadCacheReading


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> JournalMetrics:
    return journal_metrics(registry)


def test_times_and_numbers_are_kept_by_their_labels(registry: CollectorRegistry, metrics: JournalMetrics) -> None:
    metrics.took("journal_latency", 0.25, "orders", "append")
    metrics.took("journal_latency", 0.5, "orders", "append")
    metrics.add("journal_events", 10, "orders", "append")
    labels = {"topic": "orders", "type": "append"}
    assert registry.get_sample_value("inorder_journal_latency_seconds_count", labels) == 2
    assert registry.get_sample_value("inorder_journal_latency_seconds_sum", labels) == 0.75
    assert registry.get_sample_value("inorder_journal_latency_seconds_bucket", {**labels, "le": "0.25"}) == 1
    assert registry.get_sample_value("inorder_journal_events_total", labels) == 10


def test_a_time_without_labels_is_kept_too(registry: CollectorRegistry, metrics: JournalMetrics) -> None:
    metrics.took("expire_pass", 2.0)
    assert registry.get_sample_value("inorder_expire_pass_seconds_sum") == 2


def test_a_name_that_nobody_has_given_a_meaning_is_an_error(metrics: JournalMetrics) -> None:
    with pytest.raises(KeyError):
        metrics.took("journal_latencies", 1.0, "orders", "append")


def test_journals_that_are_given_one_registry_share_their_figures(registry: CollectorRegistry) -> None:
    assert journal_metrics(registry) is journal_metrics(registry)
    assert journal_metrics(CollectorRegistry()) is not journal_metrics(registry)


def test_head_caches_are_asked_at_each_scrape_until_they_are_closed(
    registry: CollectorRegistry, metrics: JournalMetrics
) -> None:
    def held(name: str) -> float | None:
        return registry.get_sample_value(f"inorder_head_cache_{name}", {"topic": "orders"})

    forget_one = metrics.watch(lambda: {"orders": HeadCacheReading(3, 1)})
    forget_other = metrics.watch(lambda: {"orders": HeadCacheReading(4, 0)})
    assert (held("journals"), held("waiting")) == (7, 1)
    forget_one()
    forget_one()
    assert (held("journals"), held("waiting")) == (4, 0)
    forget_other()
    assert held("journals") is None
