"""Dead letters of real topics and tables: applied late, exactly once, and never over newer data."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

import inorder
from inorder.database.database import open_database
from inorder.engines.partition_reader import KafkaSource
from inorder.pipeline.dead_letters import Fate, Retrier
from inorder.pipeline.job import upsert_work
from inorder.pipeline.stores.conditional_log import KafkaConditionalLog
from inorder.pipeline.stores.dead_letters import SqlDeadLetters
from inorder.pipeline.stores.ports import LetterFilter
from tests.conftest import Eventually
from tests.integration.dead_letters.conftest import RELAXED, Job
from tests.operating import discard_dead_letters, fail_over, list_dead_letters, retry_dead_letters


def test_letters_are_applied_late_with_the_version_they_had_and_never_over_newer_data(job: Job) -> None:
    alone = job.send(1, n="one", data="alone")
    overtaken = job.send(2, n="two", data="old")
    job.send(2, data="new")
    job.send(3, data="same")
    hidden = job.send(3, n="three", data="other")
    job.send(3, data="same")
    older = job.send(4, data="a")
    behind = job.send(4, n="four", data="b")
    job.consume()
    assert job.left() == [alone, overtaken, hidden, behind]
    before = job.rows()
    assert job.retry() == {
        alone: Fate.APPLIED,
        overtaken: Fate.STALE,
        hidden: Fate.STALE,
        behind: Fate.APPLIED,
    }
    assert before[4] == (None, "a", older)
    assert job.rows() == {**before, 1: ("one", "alone", alone), 4: ("four", "b", behind)}
    assert job.left() == [overtaken, hidden]
    assert job.retry(settles_stale=True) == {overtaken: Fate.STALE, hidden: Fate.STALE}
    assert (job.left(), job.rows()[3][1]) == ([], "same")


def test_a_letter_that_the_database_refuses_stays_and_its_neighbours_are_applied(job: Job) -> None:
    with closing(open_database(job.url, "test")) as database:
        if database.dialect == "sqlite":
            database.install(["CREATE UNIQUE INDEX once ON messages (data)"])
        elif database.dialect == "mysql":
            database.install(["CREATE UNIQUE INDEX once ON messages (data(64))"])
        else:
            database.install(["CREATE UNIQUE INDEX once ON messages (data)"])
    job.send(1, data="taken")
    first, second, third = job.send(2, n="x"), job.send(3, n="x", data="taken"), job.send(4, n="x")
    job.consume()
    assert job.retry() == {first: Fate.APPLIED, second: Fate.REJECTED, third: Fate.APPLIED}
    assert (job.left(), sorted(job.rows())) == ([second], [1, 2, 4])


def test_a_retry_beside_a_running_job_waits_for_it_and_both_are_right(postgres_job: Job) -> None:
    job = postgres_job
    letters = [job.send(key, n="text", data="late") for key in range(20)]
    job.consume()
    stopped = threading.Event()

    def run() -> None:
        number = 0
        while not stopped.is_set():
            job.send(number % 40, data=f"{number:06}")
            job.consume(RELAXED)
            number += 1

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        fates = job.retry()
        stopped.set()
        running.result(60)
    assert set(fates) == set(letters)
    assert set(fates.values()) <= {Fate.APPLIED, Fate.STALE}
    values = job.rows()
    for key, offset in enumerate(letters):
        n, data, version = values[key]
        assert (n == "text") == (fates[offset] is Fate.APPLIED)
        assert data == "late" or version > offset


def test_a_session_killed_before_its_commit_leaves_letter_and_row_as_they_were(
    postgres_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = postgres_job
    offset = job.send(1, n="x")
    job.consume()
    written = Retrier._write

    def killed(self: Retrier, *arguments: Any) -> Any:
        written(self, *arguments)
        with closing(open_database(job.url, "test")) as database:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            )
        monkeypatch.undo()
        return written(self, *arguments)

    monkeypatch.setattr(Retrier, "_write", killed)
    with pytest.raises(inorder.TransientError):
        job.retry()
    assert (job.left(), job.rows()) == ([offset], {})
    assert job.retry() == {offset: Fate.APPLIED}


def test_of_two_retries_at_once_one_applies_each_letter(job: Job) -> None:
    letters = [job.send(key, n="x") for key in range(6)]
    job.consume()
    together = threading.Barrier(2)

    def retry() -> dict[int, Fate]:
        together.wait(60)
        return job.retry()

    with ThreadPoolExecutor(2) as threads:
        one, other = (found.result(60) for found in [threads.submit(retry), threads.submit(retry)])
    fates = [sorted(run[offset] for run in (one, other) if offset in run) for offset in letters]
    assert all(found in ([Fate.APPLIED], [Fate.APPLIED, Fate.GONE]) for found in fates), fates
    assert job.left() == []


def test_records_that_retention_has_removed_prove_nothing(postgres_job: Job) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    job = postgres_job
    job.send(1, data="a")
    offset = job.send(1, n="x", data="b")
    job.send(2, data="c")
    last = job.send(2, data="d")
    job.consume()
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    for future in admin.delete_records([TopicPartition(job.topic, 0, last)]).values():
        future.result(60)
    assert job.retry() == {offset: Fate.UNPROVEN}
    assert (job.left(), job.rows()[1][1]) == ([offset], "a")


def test_through_the_topic_a_letter_goes_to_the_end_only_if_nothing_newer_is_there(job: Job) -> None:
    free, overtaken = job.send(1, n="one", data="x"), job.send(2, n="two")
    job.consume()
    unread = job.send(2, data="new")
    assert job.retry(through="topic") == {free: Fate.SENT, overtaken: Fate.STALE}
    assert job.left() == [overtaken]
    sent = job.records()[-1]
    assert (sent.key, sent.headers) == (b"1", (("inorder.retry", f"{job.topic}:0:{free}".encode()),))
    assert [record.offset for record in job.records()][:3] == [free, overtaken, unread]
    job.consume(RELAXED)
    assert job.rows() == {1: ("one", "x", sent.offset), 2: (None, "new", unread)}


def test_a_message_that_is_sent_while_a_letter_is_judged_stands_behind_it_and_wins(postgres_job: Job) -> None:
    job = postgres_job
    job.send(1, n="old", data="old")
    job.consume()
    source = KafkaSource({"bootstrap.servers": job.bootstrap})
    [letter] = list_dead_letters(job.settings(), 10)

    def objection(_offset: int) -> None:
        job.send(1, data="new")
        extent = (source.extents(job.topic) or {})[0]
        assert extent.end == _offset, "no reader passes the open transaction"

    with closing(KafkaConditionalLog(source.properties, source, "test")) as log:
        offset = log.send_unless(letter, objection)
    job.consume(RELAXED)
    assert job.rows() == {1: ("old", "new", offset + 1)}


def test_an_objection_or_an_error_takes_the_record_back(postgres_job: Job) -> None:
    job = postgres_job
    job.send(1, n="old")
    job.consume()
    source = KafkaSource({"bootstrap.servers": job.bootstrap})
    [letter] = list_dead_letters(job.settings(), 10)

    def fail(_offset: int) -> None:
        raise RuntimeError("no")

    with closing(KafkaConditionalLog(source.properties, source, "test")) as log:
        assert log.send_unless(letter, lambda _: "no") == "no"
        with pytest.raises(RuntimeError, match="no"):
            log.send_unless(letter, fail)
        assert len(job.records()) == 1
        assert isinstance(log.send_unless(letter, lambda _: None), int)
    assert len(job.records()) == 2


def test_a_transaction_of_somebody_else_before_ours_is_waited_for_and_looked_through(
    postgres_job: Job, eventually: Eventually
) -> None:
    job = postgres_job
    offset = job.send(1, n="old")
    job.consume()
    other = Producer({"bootstrap.servers": job.bootstrap, "transactional.id": f"{job.topic}.other"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(job.topic, b'{"id": 1, "data": "new"}', b"1")
    other.flush(60)
    with ThreadPoolExecutor(1) as threads:
        retrying = threads.submit(job.retry, through="topic")
        eventually(lambda: _is_written(job, offset + 2))
        assert not retrying.done()
        other.commit_transaction(20)
        assert retrying.result(60) == {offset: Fate.STALE}
    job.consume(RELAXED)
    assert job.rows()[1][:2] == (None, "new")


def _is_written(job: Job, end: int) -> bool:
    """Whether the partition has grown to an offset, open transactions counted."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "test", "isolation.level": "read_uncommitted"})
    try:
        return bool(consumer.get_watermark_offsets(TopicPartition(job.topic, 0), timeout=10)[1] >= end)
    finally:
        consumer.close()


def test_what_a_killed_retry_left_open_is_ended_by_the_next_one(postgres_job: Job) -> None:
    job = postgres_job
    offset = job.send(1, n="x")
    job.consume()
    killed = Producer({"bootstrap.servers": job.bootstrap, "transactional.id": "inorder.dead-letters.upsert:messages"})
    killed.init_transactions(20)
    killed.begin_transaction()
    killed.produce(job.topic, b'{"id": 1, "n": "x"}', b"1")
    killed.flush(60)
    assert job.retry(through="topic") == {offset: Fate.SENT}
    assert [record.value for record in job.records()] == [b'{"id": 1, "n": "x"}'] * 2


@pytest.mark.full
def test_a_topic_that_was_switched_away_gets_nothing_more(postgres_job: Job) -> None:
    job = postgres_job
    offset = job.send(1, n="x")
    job.consume()
    fail_over(job.settings(), job.topic, partitions=2)
    assert job.retry(through="topic") == {offset: Fate.UNPROVEN}
    assert len(job.records()) == 1
    assert job.retry() == {offset: Fate.APPLIED}


def test_a_letter_that_was_sent_but_not_settled_is_stale_from_then_on(postgres_job: Job) -> None:
    job = postgres_job
    offset = job.send(1, n="x", data="a")
    job.consume()
    source = KafkaSource({"bootstrap.servers": job.bootstrap})
    [letter] = list_dead_letters(job.settings(), 10)
    with closing(KafkaConditionalLog(source.properties, source, "test")) as log:
        log.send_unless(letter, lambda _: None)
    assert job.retry(through="topic") == {offset: Fate.STALE}
    job.consume(RELAXED)
    assert job.retry() == {offset: Fate.STALE}
    assert len(job.records()) == 2


def test_discarded_letters_are_gone_and_a_pipeline_that_nobody_knows_is_refused(job: Job) -> None:
    job.send(1, n="x")
    job.send(2, n="y")
    job.consume()
    assert discard_dead_letters(job.settings(), "of no use", key=b"1") == 1
    assert len(job.left()) == 1
    other = inorder.Settings.load(
        kafka={"bootstrap.servers": job.bootstrap}, database={"url": job.url}, pipeline={"upsert": {"table": "others"}}
    )
    with pytest.raises(inorder.ConfigurationError, match="no pipeline 'upsert:messages'"):
        list(retry_dead_letters(other, ""))
    with closing(SqlDeadLetters(open_database(job.url, "test"))) as letters:
        assert letters.counts(LetterFilter()) == {"wrong-type": 1}
    assert upsert_work(job.settings()).targets[0].mapping.pipeline == "upsert:messages"
