"""One journal for an operator: the topic against the store, and its events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from inorder.journal.stores.ports import JournalFilter, ListedJournal
from inorder.model.errors import ConfigurationError, DamagedRecordError
from inorder.model.journal import Event, Json, Key, Payload
from inorder.operate.journals import MOST_EVENTS, JournalLookup, journal_fields, payload_text
from inorder.testing.memory_journal import IN_STEP, NEVER, MemoryJournals

TOPIC = "journal"
AT = datetime(2026, 1, 2, tzinfo=UTC)


def lookup_of(journals: MemoryJournals) -> JournalLookup:
    def listed(_topic: str, where: JournalFilter) -> Iterator[ListedJournal]:
        rows = (ListedJournal(id, 1, None, AT, AT, origin, None) for id, origin in (("a", "x"), ("b", "y"), ("c", "x")))
        return (row for row in rows if where.fits(row))

    return JournalLookup(lambda: journals, listed, lambda: (TOPIC,))


def fill(journals: MemoryJournals, count: int) -> None:
    journal = journals.journal(Key("a", TOPIC))
    for number in range(1, count + 1):
        journal.append([Event(number, {"n": number})])


def test_a_journal_has_its_pointer_what_is_deleted_and_its_last_events() -> None:
    journals = MemoryJournals(regime=IN_STEP)
    fill(journals, 30)
    journals.journal(Key("a", TOPIC)).delete(12)
    found = journal_fields(lookup_of(journals).look_up(TOPIC, "a"))
    assert (found["seq_nr"], found["delete_to"], found["is_stored"]) == (30, 12, True)
    assert (found["store"]["seq_nr"], found["store"]["delete_to"]) == (30, 12)
    assert (found["from"], [each["seq_nr"] for each in found["events"]]) == (13 - 2, list(range(13, 31)))
    assert found["events"][0]["text"] == '{"n": 13}'
    earlier = journal_fields(lookup_of(journals).look_up(TOPIC, "a", 14, 3))
    assert [each["seq_nr"] for each in earlier["events"]] == [14, 15, 16]


def test_a_store_that_is_behind_is_seen_beside_the_topic() -> None:
    journals = MemoryJournals(regime=NEVER)
    fill(journals, 3)
    view = lookup_of(journals).look_up(TOPIC, "a")
    assert (view.seq_nr, view.head, view.is_stored, view.replicated) == (3, None, False, None)
    assert [record.seq_nr for record in view.events] == [1, 2, 3], "the topic has them"


def test_a_journal_that_never_was_has_no_pointer_and_no_event() -> None:
    view = lookup_of(MemoryJournals()).look_up(TOPIC, "nothing")
    assert (view.seq_nr, view.is_stored, view.events) == (None, True, ())


def test_no_look_reads_more_than_its_bound() -> None:
    journals = MemoryJournals()
    fill(journals, MOST_EVENTS + 5)
    assert len(lookup_of(journals).look_up(TOPIC, "a", 1, 10_000).events) == MOST_EVENTS


def test_a_topic_that_holds_no_journals_gets_no_mark() -> None:
    journals = MemoryJournals()
    with pytest.raises(ConfigurationError, match="holds journals"):
        lookup_of(journals).look_up("mistyped", "a")
    with pytest.raises(ConfigurationError, match="holds journals"):
        lookup_of(journals).find("mistyped", JournalFilter(), 10)
    assert journals.log.end("mistyped", 0) == 0


def test_a_journal_in_quarantine_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    journals = MemoryJournals()
    fill(journals, 1)

    def refuse(key: Key) -> None:
        raise DamagedRecordError(f"{key} is parked.", topic=key.topic, partition=0, offset=1)

    monkeypatch.setattr(journals.store, "pointer", refuse)
    found = journal_fields(lookup_of(journals).look_up(TOPIC, "a"))
    assert (found["parked"], found["seq_nr"], found["events"]) == ("journal:a is parked.", None, [])


def test_a_list_is_filtered_bounded_and_says_that_there_are_more() -> None:
    lookup = lookup_of(MemoryJournals())
    found, has_more = lookup.find(TOPIC, JournalFilter(), 2)
    assert ([each.id for each in found], has_more) == (["a", "b"], True)
    found, has_more = lookup.find(TOPIC, JournalFilter(origin="x"), 2)
    assert ([each.id for each in found], has_more) == (["a", "c"], False)


@pytest.mark.parametrize(
    ("payload", "text"),
    [(None, None), ("a", "a"), (b"a\xff", "a\\xff"), ({"ä": [1]}, '{"ä": [1]}'), (Json("a"), '"a"')],
)
def test_a_payload_is_text_for_people(payload: Payload, text: str | None) -> None:
    assert payload_text(payload) == text
