"""The benchmark of replication: what it counts, what it reads back, and what its report says of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from inorder.bench import run as module
from inorder.bench.figures import DrainRate
from inorder.bench.journal_replicate import (
    Covered,
    ReplicateOptions,
    ReplicateReport,
    ReplicateTrial,
    check_store,
    covered,
    latencies,
    see_offsets,
    show_replicate,
)
from inorder.bench.load import VALUE_BYTES, Schedule, number_of, payload_of
from inorder.bench.report import ReadBackCheck
from inorder.engines.slice_work import Slice
from inorder.journal.codec import RecordSender, append_record
from inorder.journal.replication.job import ReplicateWorker
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.journal import Event, Key, RecordMetadata
from inorder.model.message import Limits
from inorder.testing.checker import Verdict
from tests.fakes.replica import MemoryReplica

MACHINE = {"cores": 2, "load_average_before": 0.5, "load_average_after": 1.5}
WHOLE = ReadBackCheck(4_000, 4_000, Verdict())


def trial(store: str = "postgres", engine: str = "resident", check: ReadBackCheck = WHOLE) -> ReplicateTrial:
    drain = DrainRate(70_000.4, 5.0, 9.0)
    return ReplicateTrial(store, engine, 400_000, drain, {"job": 12.345, "store": None}, [4.0, 5.0, 90.0], check)


def report(*trials: ReplicateTrial) -> ReplicateReport:
    return ReplicateReport(ReplicateOptions(), trials or (trial(),), MACHINE)


REPORT = report(trial(), trial("cassandra", "micro-batch"))
BROKEN = report(trial(), trial(check=ReadBackCheck(3_999, 3_999, Verdict(lost=1))))


def shown(given: ReplicateReport) -> str:
    text = io.StringIO()
    show_replicate(Console(file=text, width=200), given)
    return text.getvalue()


def test_json_has_figures_aims_and_checks_of_each_trial() -> None:
    given = json.loads(json.dumps(REPORT.as_dict()))
    first, second = given["trials"]
    assert (first["events_per_second"], first["startup_seconds"], first["latency_ms"]["p50"]) == (70_000.4, 9.0, 5.0)
    assert first["targets"] == {"events_per_second": 60_000, "latency_p50_ms": 20}
    assert second["targets"] == {"events_per_second": None, "latency_p50_ms": 400}
    assert first["cpu_us_per_event"] == {"job": 12.35, "store": None}
    assert (first["check"]["records"], given["checks"]["hold"], given["machine"]) == (4_000, True, MACHINE)


def test_a_person_sees_aims_beside_figures() -> None:
    lines = shown(REPORT).splitlines()
    assert lines[1].split() == ["postgres", "resident", "70,000", "60,000", "9.0", "12.3", "-", "5.0", "20", "90.0"]
    assert lines[2].split()[:4] == ["cassandra", "micro-batch", "70,000", "-"]
    assert "load average 0.5 before" in shown(REPORT)
    assert "whole and in order" in shown(REPORT)


def test_a_store_that_lacks_an_event_ends_the_run_with_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "replicate_report", lambda *_: BROKEN)
    assert module.run_replicate(ReplicateOptions(), True) == 5
    printed = capsys.readouterr()
    assert json.loads(printed.out)["checks"]["hold"] is False
    assert "A guarantee was broken" in printed.err


def test_an_engine_that_is_not_there_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ConfigurationError, match="diesel"):
        module.replicate_report(ReplicateOptions.of("postgres", "diesel", None, 1.0), lambda _: None)


def test_both_is_every_store_and_every_engine_and_each_store_has_a_size() -> None:
    options = ReplicateOptions.of("both", "both", None, 3.0)
    assert (options.stores, options.engines) == (("postgres", "cassandra"), ("resident", "micro-batch"))
    assert [options.rounds(store) for store in options.stores] == [100, 25]
    assert ReplicateOptions.of("postgres", "resident", 1_000, 3.0).rounds("postgres") == 1
    assert options.schedule == Schedule(500, 3.0, 5.0)


def test_a_payload_names_its_event_and_has_a_hundred_bytes() -> None:
    assert [(number_of(payload_of(number)), len(payload_of(number))) for number in (1, 10**9)] == [
        (1, VALUE_BYTES), (10**9, VALUE_BYTES),
    ]  # fmt: skip
    assert number_of(None) == 0


def test_an_append_took_until_the_first_look_that_covers_it() -> None:
    looks = [Covered(10_000_000, {0: 0}), Covered(20_000_000, {0: 0, 1: 5}), Covered(30_000_000, {0: 2, 1: 5})]
    appended = [[0, 0, 4_000_000], [0, 1, 25_000_000], [0, 2, 29_000_000], [1, 5, 1_000_000]]
    assert latencies(appended, looks) == [6.0, 5.0, 1.0, 19.0]


def told_one_by_one(*found: Mapping[int, int]) -> Iterator[Mapping[int, int]]:
    yield from found


def test_looks_go_on_until_everything_is_covered() -> None:
    answers = told_one_by_one({}, {0: 1}, {0: 1, 1: 0})
    looks = see_offsets(lambda: next(answers), 3, lambda: None, 10.0)
    assert [covered(look.offsets) for look in looks] == [0, 2, 3]


def test_looks_end_with_their_time_and_with_the_job() -> None:
    with pytest.raises(TransientError, match="Only 1 of 2 records"):
        see_offsets(lambda: {0: 0}, 2, lambda: None, 0.0)

    def gone() -> None:
        raise TransientError("The job has ended.")

    with pytest.raises(TransientError, match="has ended"):
        see_offsets(lambda: {0: 0}, 2, gone, 10.0)


def appended(*events: Event) -> Slice:
    record = append_record(
        Key("id-0", "t"), events, datetime(2026, 1, 1, tzinfo=UTC), RecordSender(), RecordMetadata(), {}, Limits()
    )
    return Slice("t", 0, [0], [record.key], [record.value], [0], [record.headers])


@pytest.mark.parametrize(
    ("marks", "verdict"),
    [
        ([1, 2], {}),
        ([1], {"lost": 1}),
        ([2, 1], {"out_of_order": 1}),
        ([1, 2, 2], {"duplicated": 1}),
        ([1, 2, 3], {"phantom": 1}),
    ],
)
def test_what_is_read_back_is_compared_event_by_event(marks: list[int], verdict: dict[str, Any]) -> None:
    replica = MemoryReplica()
    with closing(ReplicateWorker(replica, 10)) as worker:
        worker.apply(appended(*[Event(number, payload_of(mark)) for number, mark in enumerate(marks, 1)]), 0)
    found = check_store(replica, "t", {"id-0": 2}).as_dict()
    assert {name: count for name, count in found.items() if count and name not in ("records", "distinct")} == verdict
