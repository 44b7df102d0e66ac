"""Alert rules for Prometheus and a dashboard for Grafana, from one list of metrics.

`ALERTS` and `ROWS` are that list as PromQL; `rules` and `dashboard` write them as files. The files in `deploy/` are
written by `make docs`, and `inorder observe` prints the same. A test parses each expression and compares the metrics
and labels in it with those that relay, jobs, journals and pages serve.

An alert stands for something that an operator has to do. An outage that ends by itself shows on the dashboard; an alert
is raised when it lasts. Several instances of a relay read the same outbox, so its metrics are combined by `max` or
`min`, never summed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Severity = Literal["critical", "warning"]

RULES_FILE: Final = "prometheus/inorder.rules.yml"
DASHBOARD_FILE: Final = "grafana/inorder.json"
SECTION: Final = "operations.md#alerts-and-dashboard"
"""Where the documentation says what to do."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule: raised when `when` has held for `minutes`."""

    name: str
    when: str
    minutes: int
    severity: Severity
    summary: str
    action: str
    """What to look at first."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: PromQL by legend, in a unit of Grafana."""

    title: str
    lines: Mapping[str, str]
    unit: str = "short"


ALERTS: Final[Mapping[str, tuple[Alert, ...]]] = {
    "inorder-relay": (
        Alert(
            "InorderRelayAbsent",
            "absent(inorder_relay_running)",
            5,
            "critical",
            "No relay is scraped.",
            "Start `inorder relay run` with `health.listen`, or delete this rule where there is no relay.",
        ),
        Alert(
            "InorderRelayStopped",
            "max by (group) (inorder_relay_running) == 0",
            2,
            "critical",
            "No relay of group {{ $labels.group }} runs.",
            "Its log has the error that ended it; `inorder doctor` checks the set-up.",
        ),
        Alert(
            "InorderRelayWithoutOwner",
            "max by (group) (inorder_relay_is_leader) == 0 and max by (group) (inorder_outbox_waiting_events) > 0",
            5,
            "critical",
            "Rows of group {{ $labels.group }} wait, and no scraped instance owns a shard or topic.",
            "`inorder relay status` names the owners.",
        ),
        Alert(
            "InorderRelayFailing",
            "max by (group) (inorder_relay_failing) == 1",
            5,
            "warning",
            "A relay of group {{ $labels.group }} has had an error for minutes.",
            "`inorder_relay_last_error_info` and its log have the error.",
        ),
        Alert(
            "InorderRelayBreakerOpen",
            'max by (group, daemon) (inorder_relay_breaker_state{state="open"}) == 1',
            5,
            "warning",
            "The circuit breaker of {{ $labels.daemon }} in group {{ $labels.group }} is open.",
            "The database or Kafka refuses its work; `inorder doctor` checks both.",
        ),
        Alert(
            "InorderRelayReloadRefused",
            'sum by (group) (increase(inorder_relay_reloads_total{outcome="refused"}[15m])) > 0',
            0,
            "warning",
            "A change of the settings of group {{ $labels.group }} was refused.",
            "The event relay.reload_refused in its log has the reason; the old settings are in force.",
        ),
        Alert(
            "InorderOutboxOld",
            "max by (group) (inorder_outbox_oldest_waiting_seconds) > 300",
            5,
            "critical",
            "The oldest row of group {{ $labels.group }} has waited for {{ $value | humanizeDuration }}.",
            "`inorder status` says what waits; a paused topic and a parked key wait too.",
        ),
        Alert(
            "InorderOutboxUnread",
            "min by (group) (inorder_outbox_read_age_seconds) > 60",
            2,
            "critical",
            "The outbox of group {{ $labels.group }} cannot be read.",
            "The database does not answer: `inorder doctor`.",
        ),
        Alert(
            "InorderExceeded",
            "max by (group) (inorder_outbox_exceeded_events) > 0",
            1,
            "warning",
            "{{ $value }} rows of group {{ $labels.group }} used up their attempts.",
            "`inorder exceeded list`, then retry or discard them.",
        ),
        Alert(
            "InorderParkedKeys",
            "max by (group) (inorder_outbox_parked_keys) > 0",
            15,
            "critical",
            "{{ $value }} keys of group {{ $labels.group }} wait for a row that used up its attempts.",
            "Nothing of these keys is published until the rows are retried or discarded: `inorder exceeded list`.",
        ),
    ),
    "inorder-pipeline": (
        Alert(
            "InorderPipelineStopped",
            "max by (job) (inorder_pipeline_running) == 0",
            2,
            "critical",
            "The job {{ $labels.job }} does not run.",
            "Its log has the error that ended it.",
        ),
        Alert(
            "InorderPipelineOld",
            "max by (job, topic) (inorder_pipeline_oldest_record_age_seconds) > 300",
            5,
            "critical",
            "Records of {{ $labels.topic }} wait for the job {{ $labels.job }} for {{ $value | humanizeDuration }}.",
            "`inorder pipeline status` has the lag of each partition; a paused table waits too.",
        ),
        Alert(
            "InorderPipelineUnread",
            "min by (job) (inorder_pipeline_lag_age_seconds) > 60",
            2,
            "critical",
            "The lag of the job {{ $labels.job }} cannot be read.",
            "Kafka or the store does not answer: `inorder doctor`.",
        ),
        Alert(
            "InorderPipelineWaits",
            "max by (job, topic, partition) (inorder_pipeline_waiting_seconds) > 60",
            0,
            "critical",
            "Partition {{ $labels.partition }} of {{ $labels.topic }} waits: its table refuses most records.",
            "The event pipeline.partition_waits in the log of the job has the refusal.",
        ),
        Alert(
            "InorderPipelineRestarts",
            "sum by (job, topic, partition) (increase(inorder_pipeline_restarts_total[15m])) > 5",
            0,
            "warning",
            "What reads partition {{ $labels.partition }} of {{ $labels.topic }} restarts again and again.",
            "The log of the job has the cause.",
        ),
        Alert(
            "InorderPipelineUndecided",
            "min_over_time(inorder_pipeline_undecided_offsets[15m]) > 0",
            0,
            "warning",
            "A producer hangs in a transaction on partition {{ $labels.partition }} of {{ $labels.topic }}.",
            "Nothing behind it is read until it ends; kafka-transactions.sh finds it. Do not abort one of inorder's.",
        ),
        Alert(
            "InorderDeadLetters",
            "sum by (job, pipeline) (inorder_pipeline_dead_letters) > 0",
            1,
            "warning",
            "{{ $value }} dead letters of {{ $labels.pipeline }} wait for an operator.",
            "`inorder dead-letters list`, then retry or discard them.",
        ),
        Alert(
            "InorderStaleRecords",
            "sum by (job, topic) (delta(inorder_pipeline_stale_records[15m])) > 0",
            0,
            "warning",
            "Records of {{ $labels.topic }} are older than the rows they are for.",
            "One key is in several partitions, or pointers were lost.",
        ),
    ),
    "inorder-journal": (
        Alert(
            "InorderQuarantine",
            "sum by (topic) (increase(inorder_replicator_quarantined_records_total[15m])) > 0",
            0,
            "critical",
            "Journals of {{ $labels.topic }} were parked in quarantine: their reads are refused.",
            "`inorder journal quarantine list`.",
        ),
        Alert(
            "InorderForks",
            "sum by (topic) (increase(inorder_replicator_forks_total[15m])) > 0",
            0,
            "warning",
            "Events of {{ $labels.topic }} lost against those of another writer.",
            "Let all writers of a journal use conditions, or have one writer.",
        ),
        Alert(
            "InorderProjectionWaits",
            "max by (projection, topic, partition) (inorder_projection_waiting) == 1",
            5,
            "critical",
            "The projection {{ $labels.projection }} waits on {{ $labels.topic }} {{ $labels.partition }}.",
            "The event journal.projection_waits in the log of the application has the error.",
        ),
        Alert(
            "InorderHeadCacheFault",
            'sum by (topic) (increase(inorder_head_cache_restarts_total{result="unexpected"}[15m])) > 0',
            0,
            "warning",
            "The head cache of {{ $labels.topic }} failed unexpectedly.",
            "Report the traceback in the log; reads use Kafka meanwhile and are right.",
        ),
    ),
    "inorder-web": (
        Alert(
            "InorderWebPartDown",
            "max by (part) (inorder_web_part_up) == 0",
            5,
            "warning",
            "The pages cannot read {{ $labels.part }}.",
            "`/readyz` of `inorder web` has the reason.",
        ),
    ),
}

ROWS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "Outbox and relay": (
        Panel(
            "Published", {"{{group}}": "sum by (group) (rate(inorder_relay_published_total[$__rate_interval]))"}, "cps"
        ),
        Panel("Rows that wait", {"{{group}}": "max by (group) (inorder_outbox_waiting_events)"}),
        Panel("Oldest row", {"{{group}}": "max by (group) (inorder_outbox_oldest_waiting_seconds)"}, "s"),
        Panel(
            "Set aside",
            {
                "exceeded rows {{group}}": "max by (group) (inorder_outbox_exceeded_events)",
                "parked keys {{group}}": "max by (group) (inorder_outbox_parked_keys)",
                "missing ids {{group}}": "max by (group) (inorder_outbox_missing_events)",
            },
        ),
        Panel(
            "Owners",
            {
                "owners {{group}}": "sum by (group) (inorder_relay_is_leader)",
                "running {{group}}": "sum by (group) (inorder_relay_running)",
                "failing {{group}}": "sum by (group) (inorder_relay_failing)",
            },
        ),
        Panel("Topics: oldest row", {"{{topic}}": "max by (topic) (inorder_topic_oldest_waiting_seconds)"}, "s"),
    ),
    "Pipeline": (
        Panel(
            "Records",
            {"{{job}} {{outcome}}": "sum by (job, outcome) (rate(inorder_pipeline_records_total[$__rate_interval]))"},
            "cps",
        ),
        Panel("Lag", {"{{job}} {{topic}}": "sum by (job, topic) (inorder_pipeline_lag_records)"}),
        Panel(
            "Oldest record",
            {"{{job}} {{topic}}": "max by (job, topic) (inorder_pipeline_oldest_record_age_seconds)"},
            "s",
        ),
        Panel(
            "Time of a slice, 99 %",
            {
                "{{job}} {{topic}}": (
                    "histogram_quantile(0.99, "
                    "sum by (job, topic, le) (rate(inorder_pipeline_slice_seconds_bucket[$__rate_interval])))"
                )
            },
            "s",
        ),
        Panel("Dead letters", {"{{pipeline}} {{code}}": "sum by (pipeline, code) (inorder_pipeline_dead_letters)"}),
        Panel(
            "Restarts and undecided offsets",
            {
                "restarts {{job}}": "sum by (job) (increase(inorder_pipeline_restarts_total[$__rate_interval]))",
                "undecided {{topic}}": "sum by (topic) (inorder_pipeline_undecided_offsets)",
            },
        ),
    ),
    "Journals": (
        Panel(
            "Replication latency, 99 %",
            {
                "{{topic}}": (
                    "histogram_quantile(0.99, sum by (topic, le) "
                    "(rate(inorder_replicator_replication_latency_seconds_bucket[$__rate_interval])))"
                )
            },
            "s",
        ),
        Panel(
            "Latency of calls, 99 %",
            {
                "{{type}}": (
                    "histogram_quantile(0.99, "
                    "sum by (type, le) (rate(inorder_journal_latency_seconds_bucket[$__rate_interval])))"
                )
            },
            "s",
        ),
        Panel(
            "Quarantine and forks",
            {
                "quarantined {{topic}}": (
                    "sum by (topic) (increase(inorder_replicator_quarantined_records_total[$__rate_interval]))"
                ),
                "forks {{topic}}": "sum by (topic) (increase(inorder_replicator_forks_total[$__rate_interval]))",
            },
        ),
        Panel("Projections: lag", {"{{projection}}": "sum by (projection) (inorder_projection_lag)"}),
    ),
}


def files() -> dict[str, str]:
    """Both files by their path below `deploy/`."""
    return {RULES_FILE: rules(), DASHBOARD_FILE: dashboard()}


def rules() -> str:
    """The rules as Prometheus reads them."""
    lines = [
        "# Alert rules of inorder, for `rule_files` of Prometheus. Generated from the code by `make docs`.",
        "groups:",
    ]
    for group, alerts in ALERTS.items():
        lines += [f"  - name: {group}", "    rules:"]
        for alert in alerts:
            lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> Iterator[str]:
    # A JSON string is a YAML string, and needs no other quoting.
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.when)}"
    if alert.minutes:
        yield f"        for: {alert.minutes}m"
    yield from ("        labels:", f"          severity: {alert.severity}", "        annotations:")
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.action)}"
    yield f"          documentation: {json.dumps(SECTION)}"


_WIDTH: Final = 8
_HEIGHT: Final = 8
_COLUMNS: Final = 24 // _WIDTH
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> str:
    """The dashboard as Grafana imports it; the data source is chosen in it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    found = {
        "uid": "inorder",
        "title": "inorder",
        "tags": ["inorder"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": list(_panels()),
    }
    return json.dumps(found, indent=2) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        place = {"h": 1, "w": 24, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        for index, panel in enumerate(panels):
            number += 1
            row, column = divmod(index, _COLUMNS)
            place = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": top + 1 + row * _HEIGHT}
            yield _panel(number, panel, place)
        top += 1 + -(-len(panels) // _COLUMNS) * _HEIGHT


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
        for index, (legend, expression) in enumerate(panel.lines.items())
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
