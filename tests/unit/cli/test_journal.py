"""inorder journal: JSON lines in and out, one clear error for what is wrong, and then nothing is written."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from inorder.app import App
from inorder.journal.codec import ACTION_HEADER
from inorder.model.journal import MAX_SEQ_NR
from inorder.model.message import Record
from tests.unit.cli.conftest import Ran, Run
from tests.unit.cli.services import provide
from tests.unit.journal.subscribing import TOPIC, Topic


class Lag(NamedTuple):
    topic: str
    partition: int
    end: int
    replicated: int | None
    behind: int


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Journals in memory, in the place of those on Kafka."""
    topic = Topic(1)

    def journals(app: App) -> Any:
        assert app.settings.journal.segment_size == 10_000
        return topic.journals

    lag = [Lag(TOPIC, 0, 5, 3, 1), Lag(TOPIC, 1, 0, None, 0)]
    provide(monkeypatch, journals=property(journals), journal_admin=SimpleNamespace(lag=lambda: lag))
    return topic


@pytest.fixture
def append(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`inorder journal append` with these lines on stdin."""

    def append_lines(*lines: str, options: tuple[str, ...] = ()) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
        return run("journal", "append", TOPIC, "a", *options)

    return append_lines


def events(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.stderr) == (0, "")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_what_is_appended_is_read_back_and_can_be_appended_again(topic: Topic, append: Any, run: Run) -> None:
    lines = [
        '{"seq_nr": 1, "payload": {"name": "Zoë"}, "tags": ["b", "a"]}',
        "",
        '{"seq_nr": 2, "payload": "plain", "payload_type": "text"}',
        '{"seq_nr": 3, "payload": {"base64": "AP8="}, "payload_type": "binary"}',
        '{"seq_nr": 4}',
        '{"seq_nr": 5, "payload": null}',
    ]
    assert append(*lines, options=("--json",)).stdout == '{"partition": 0, "offset": 0}\n'
    read = run("journal", "read", TOPIC, "a")
    found = events(read)
    assert [(each["seq_nr"], each.get("payload"), each["tags"]) for each in found] == [
        (1, {"name": "Zoë"}, ["a", "b"]),
        (2, "plain", []),
        (3, {"base64": "AP8="}, []),
        (4, None, []),
        (5, None, []),
    ]
    assert ("payload" in found[3], "payload" in found[4]) == (False, True)
    assert (found[0]["partition"], found[0]["offset"], found[0]["metadata"]) == (0, 0, {"header": None, "data": None})
    run("journal", "purge", TOPIC, "a")
    assert append(*read.stdout.splitlines()).code == 0
    again = events(run("journal", "read", TOPIC, "a"))
    assert [each.get("payload") for each in again] == [each.get("payload") for each in found]


def test_a_part_is_read_from_one_number_to_another(topic: Topic, run: Run) -> None:
    topic.append("a", 1, 2, 3, 4)
    found = events(run("journal", "read", TOPIC, "a", "--from", "2", "--to", "3"))
    assert [each["seq_nr"] for each in found] == [2, 3]
    assert events(run("journal", "read", TOPIC, "nobody")) == []


def test_pointer_delete_and_purge(topic: Topic, run: Run) -> None:
    topic.append("a", 1, 2, 3)
    assert run("journal", "pointer", TOPIC, "a").stdout == "3\n"
    deleted = events(run("journal", "delete", TOPIC, "a", "--to", "2", "--json"))
    assert deleted == [{"partition": 0, "offset": 3}]
    assert [each["seq_nr"] for each in events(run("journal", "read", TOPIC, "a"))] == [3]
    assert run("journal", "purge", TOPIC, "a").stdout.split() == ["partition", "0", "offset", "6"]
    assert run("journal", "pointer", TOPIC, "a").stdout == ""
    assert run("journal", "pointer", TOPIC, "a", "--json").stdout == '{"seq_nr": null}\n'


def test_a_delete_of_nothing_says_so_and_writes_nothing(topic: Topic, run: Run) -> None:
    ran = run("journal", "delete", TOPIC, "a", "--to", "2")
    assert (ran.code, ran.stdout) == (0, "")
    assert ran.stderr == "There is no journal journal:a; nothing was written.\n"
    assert topic.log.end(TOPIC, 0) == 1  # the mark of the question


def test_ids_are_those_that_are_replicated(topic: Topic, run: Run) -> None:
    topic.append("a", 1)
    assert run("journal", "ids", TOPIC).stdout == ""
    topic.replicate()
    assert run("journal", "ids", TOPIC).stdout == "a\n"
    assert run("journal", "ids", TOPIC, "--json").stdout == '{"id": "a"}\n'


@pytest.mark.usefixtures("topic")
def test_lag_tells_of_every_partition(run: Run) -> None:
    assert run("journal", "lag").stdout.splitlines() == [
        "topic    partition  end  replicated  behind",
        "journal  0          5    3           1",
        "journal  1          0    none        0",
    ]
    assert json.loads(run("journal", "lag", "--json").stdout)[0] == Lag(TOPIC, 0, 5, 3, 1)._asdict()


BAD_LINES = [
    ('{"seq_nr": 1', "line 2: it is not JSON", 'Write {"seq_nr": 1, "payload": {}}.'),
    ("[1]", "line 2: '[1]' is not an object", ""),
    ('{"seq_nr": 0}', "line 2, seq_nr: 0 is not a sequence number", ""),
    ('{"payload": 1}', "line 2, seq_nr: None is not a sequence number", ""),
    ('{"seq_nr": "2"}', "line 2, seq_nr: '2' is not a sequence number", ""),
    (f'{{"seq_nr": {MAX_SEQ_NR + 1}}}', f"line 2, seq_nr: {MAX_SEQ_NR + 1} is not a sequence number", ""),
    ('{"seq_nr": 2, "paylaod": 1}', "line 2: 'paylaod' is not known", "Known are payload, payload_type, seq_nr, tags."),
    ('{"seq_nr": 2, "tags": "a"}', "line 2: tags 'a' is not a list of texts", ""),
    ('{"seq_nr": 2, "payload": 1, "payload_type": "xml"}', "line 2: payload_type 'xml' is not known", "It is json, "),
    ('{"seq_nr": 2, "payload": 1, "payload_type": "text"}', "line 2: its payload is not a text", ""),
    ('{"seq_nr": 2, "payload": "1", "payload_type": "binary"}', "line 2: its payload is not an object", ""),
    ('{"seq_nr": 2, "payload": {"base64": "?"}, "payload_type": "binary"}', "line 2: its payload is not base64", ""),
    ('{"seq_nr": 1}', "events: seq_nr 1 follows 1, but the numbers of an append rise", ""),
]


@pytest.mark.parametrize(("line", "words", "hint"), BAD_LINES, ids=[line for line, _, _ in BAD_LINES])
def test_a_bad_line_is_named_with_what_is_wrong_and_nothing_is_written(
    topic: Topic, append: Any, line: str, words: str, hint: str
) -> None:
    ran = append('{"seq_nr": 1}', line, '{"seq_nr": 9}')
    assert (ran.code, ran.stdout) == (3, "")
    assert words in ran.stderr
    assert hint in ran.stderr
    assert topic.log.end(TOPIC, 0) == 0


def test_an_append_of_nothing_is_refused(topic: Topic, append: Any) -> None:
    ran = append("", "  ")
    assert (ran.code, "There is no event on stdin" in ran.stderr) == (3, True)
    assert topic.log.end(TOPIC, 0) == 0


def test_an_append_that_expects_another_end_is_refused(topic: Topic, append: Any) -> None:
    topic.append("a", 1, 2)
    ran = append('{"seq_nr": 2}', options=("--expected", "1"))
    assert ran.code == 1
    assert "error JOURNAL-003: The journal journal:a ends at 2, not at 1; nothing was written." in ran.stderr
    assert append('{"seq_nr": 3}', options=("--expected", "2")).code == 0


def test_an_expiry_is_a_duration(topic: Topic, append: Any) -> None:
    ran = append('{"seq_nr": 1}', options=("--expire-after", "soon"))
    assert (ran.code, "write it as `30 days`" in ran.stderr) == (2, True)
    assert topic.log.end(TOPIC, 0) == 0
    assert append('{"seq_nr": 1}', options=("--expire-after", "30 days")).code == 0
    assert b'"expireAfter":"30 days"' in (topic.log.records_between(TOPIC, 0, 0, 1)[0].value or b"")


def test_a_damaged_record_is_told_with_its_coordinates_and_other_journals_are_read(topic: Topic, run: Run) -> None:
    topic.append("b", 1)
    topic.log.write(Record(TOPIC, b"a", b"{", ((ACTION_HEADER, b'{"append":'),), None, 1), 0)
    ran = run("journal", "read", TOPIC, "a")
    assert (ran.code, ran.stdout) == (1, "")
    assert "error JOURNAL-002: The record journal[0] offset 1 of key b'a' cannot be read" in ran.stderr
    assert "a purge of this journal lets it start over" in ran.stderr
    assert [each["seq_nr"] for each in events(run("journal", "read", TOPIC, "b"))] == [1]
    assert run("journal", "purge", TOPIC, "a").code == 0
    assert events(run("journal", "read", TOPIC, "a")) == []


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("read", TOPIC, ""), "'' is not an id"),
        (("read", "no topic", "a"), "'no topic' is not a legal topic name"),
        (("read", TOPIC, "a", "--from", "0"), "from_seq_nr: 0 is not a sequence number"),
        (("read", TOPIC, "a", "--from", "3", "--to", "2"), "3"),
        (("delete", TOPIC, "a", "--to", "0"), "to: 0 is not a sequence number"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(run: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = run("journal", *arguments)
    assert (ran.code, words in ran.stderr) == (3, True), ran.stderr
