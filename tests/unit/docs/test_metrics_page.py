"""docs/operations.md lists every metric that relay, pipeline and journals serve, with its labels, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from inorder.engines import job_status as of_the_pipeline
from inorder.engines.job_status import PipelineCollector
from inorder.journal import measuring as of_journals
from inorder.journal.reading.head_cache import HeadCacheReading
from inorder.observe.metrics import RelayCollector
from tests.unit.docs.markdown import page, rows
from tests.unit.observe.test_metrics import FULL as FULL_RELAY
from tests.unit.observe.test_pipeline_metrics import FULL

_NAME = re.compile(r"`(inorder_\w+)(?:\{([\w,]+)\})?`")
_WRITTEN_BY_US = {"le"}


def served() -> dict[str, set[str]]:
    """Every metric and its labels."""
    registry = CollectorRegistry()
    metrics = of_journals.journal_metrics(registry)
    metrics.watch(lambda: {"topic": HeadCacheReading(1, 1)})
    metrics.watch_projection("name", lambda: {("topic", 0): 1}, dict)
    for name, (_, _, labels) in of_journals._TIMES.items():
        metrics.took(name, 1.0, *labels)
    for name, (_, _, labels) in of_journals._COUNTS.items():
        metrics.add(name, 1, *labels)
    return named(registry.collect()) | named(PipelineCollector(lambda: FULL).collect())


def named(families: Iterable[Metric]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            found.setdefault(name, set()).update(set(sample.labels) - _WRITTEN_BY_US - {"job", "group"})
    return found


def documented(cells: Iterable[str]) -> dict[str, set[str]]:
    matches = [match for cell in cells for match in [_NAME.match(cell)] if match is not None]
    return {match[1]: set(match[2].split(",")) if match[2] else set() for match in matches}


def section(title: str) -> str:
    return page("docs/operations.md").partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_names_every_metric_with_its_labels_and_no_other() -> None:
    assert documented(cells[0] for cells in rows(section("Metrics of journals"))) == served()


def test_the_page_names_every_metric_of_the_relay_with_its_labels_and_no_other() -> None:
    relay = named(RelayCollector(lambda: FULL_RELAY).collect())
    assert documented(cells[0] for cells in rows(section("Metrics of the relay"))) == relay


def test_the_modules_that_serve_them_name_them_too() -> None:
    texts = f"{of_journals.__doc__}\n{of_the_pipeline.__doc__}"
    assert documented(line.lstrip("| ") for line in texts.splitlines()) == served()


def test_no_metric_has_a_label_for_a_key_or_an_id() -> None:
    allowed = {"topic", "partition", "type", "result", "outcome", "payload_type", "step", "when", "source", "phase"}
    assert set().union(*served().values()) == allowed | {
        "version",
        "expires",
        "code",
        "pipeline",
        "field",
        "projection",
        "kind",
    }
