"""Event types: what is written is read by today's class, and what cannot be is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.codec import from_value, to_value
from inorder.journal.entity import Entity
from inorder.journal.event_types import EventTypes
from inorder.model.errors import ConfigurationError, EventTypeError, ValidationError
from inorder.model.journal import Event, Payload, PayloadMetadata, PayloadType
from inorder.testing import NEVER, MemoryJournals
from tests.selection import examples
from tests.unit.journal.world import KEY

EVENTS = EventTypes()


class Currency(StrEnum):
    EUR = "EUR"
    USD = "USD"


@dataclass(frozen=True)
class Person:
    name: str
    born: datetime | None = None


@EVENTS.register("account.opened")
@dataclass(frozen=True)
class Opened:
    id: UUID
    owners: tuple[Person, ...]
    limits: dict[int, Decimal] = field(default_factory=dict)
    notice: timedelta = timedelta(days=30)


@EVENTS.register("account.deposited", version=3)
class Deposited(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, strict=True)

    amount: Decimal
    currency: Currency
    labels: frozenset[str] = frozenset()


@EVENTS.upcast("account.deposited", from_version=1)
def add_currency(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "currency": "EUR"}


@EVENTS.upcast("account.deposited", from_version=2)
def rename_amount(data: dict[str, Any]) -> dict[str, Any]:
    return {"amount": data["sum"], "currency": data["currency"]}


def typed(name: object, version: object, data: object) -> Event:
    return Event(7, {"type": name, "version": version, "data": data})


def through_kafka(payload: Payload) -> Event:
    """A payload as a reader gets it."""
    [found] = from_value(*to_value([Event(1, payload)], PayloadMetadata())).events
    return found


texts = st.text(st.characters(codec="utf-8"), max_size=9)
persons = st.builds(Person, texts, st.none() | st.datetimes(timezones=st.just(UTC)))
decimals = st.decimals(-(10**9), 10**9, places=2)
opened = st.builds(
    Opened,
    st.uuids(),
    st.lists(persons, max_size=3).map(tuple),
    st.dictionaries(st.integers(0, 9), decimals, max_size=3),
    st.timedeltas(timedelta(0), timedelta(days=999)),
)
deposited = st.builds(Deposited, amount=decimals, currency=st.sampled_from(Currency), labels=st.frozensets(texts))


@examples(100)
@given(opened | deposited)
def test_an_event_comes_back_as_it_was(event: object) -> None:
    assert EVENTS.decode(KEY, through_kafka(EVENTS.encode(event))) == event


def test_the_payload_is_plain_json_with_type_and_version() -> None:
    event = EVENTS.event(1, Deposited(amount=Decimal("5.00"), currency=Currency.EUR), tags=["money"])
    kind, value = to_value([event], PayloadMetadata())
    assert kind is PayloadType.JSON
    [found] = json.loads(value)["events"]
    data = {"amount": "5.00", "currency": "EUR", "labels": []}
    payload = {"type": "account.deposited", "version": 3, "data": data}
    assert found == {"seqNr": 1, "tags": ["money"], "payloadType": "json", "payload": payload}


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, {"sum": "5"}),
        (2, {"sum": "5", "currency": "EUR"}),
        (3, {"amount": "5", "currency": "EUR"}),
    ],
)
def test_every_older_version_is_read_by_todays_class(version: int, data: object) -> None:
    found = EVENTS.decode(KEY, typed("account.deposited", version, data))
    assert found == Deposited(amount=Decimal(5), currency=Currency.EUR)


@pytest.mark.parametrize(
    ("event", "words", "name", "version"),
    [
        (typed("account.closed", 1, {}), "the type is unknown", "account.closed", 1),
        (typed("account.opened", 2, {}), "knows versions up to 1", "account.opened", 2),
        (typed("account.deposited", 3, {"amount": "5"}), "does not fit Deposited", "account.deposited", 3),
        (typed("account.deposited", 2, {"amount": "5"}), "from version 2 failed: KeyError", "account.deposited", 2),
        (typed("account.opened", 0, {}), "no type and version", "account.opened", 0),
        (typed("account.opened", "1", {}), "no type and version", "account.opened", None),
        (typed(None, 1, {}), "no type and version", None, 1),
        (Event(7, {"by": 5}), "no type and version", None, None),
        (Event(7, b"bytes"), "no type and version", None, None),
        (Event(7, "text"), "no type and version", None, None),
        (Event(7), "no type and version", None, None),
    ],
)
def test_what_cannot_be_read_is_named(event: Event, words: str, name: str | None, version: int | None) -> None:
    with pytest.raises(EventTypeError, match=words) as caught:
        EVENTS.decode(KEY, event)
    error = caught.value
    assert (error.event_type, error.version, error.journal, error.seq_nr) == (name, version, str(KEY), 7)
    assert f"Event 7 of journal:account-1, type {name!r}, version" in error.message
    assert error.hint


def test_a_missing_upcaster_is_named() -> None:
    events = EventTypes()
    events.register("moved", version=3)(Person)
    events.upcast("moved", from_version=1)(dict)
    with pytest.raises(EventTypeError, match=r"no upcaster from version 2 to 3.*upcast\('moved', from_version=2\)"):
        events.decode(KEY, typed("moved", 1, {"name": "x"}))


def test_a_class_that_is_not_registered_and_a_value_that_is_not_json_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Person is not registered.*account\.deposited, account\.opened"):
        EVENTS.encode(Person("x"))
    events = EventTypes()
    events.register("blob")(Blob)
    assert events.decode(KEY, through_kafka(events.encode(Blob(b"text")))) == Blob(b"text")
    with pytest.raises(ValidationError, match="a blob cannot be written as JSON"):
        events.encode(Blob(b"\xff"))


@dataclass
class Blob:
    content: bytes


def test_a_class_that_pydantic_does_not_know_is_a_fault_of_the_program_not_of_the_event() -> None:
    @dataclass
    class Hidden:
        pass

    @dataclass
    class Local:
        hidden: Hidden

    @dataclass
    class Strange:
        log: MemoryJournals

    for kind in (Local, Strange):
        events = EventTypes()
        events.register("x")(kind)
        with pytest.raises(ConfigurationError):
            events.encode(kind(None))  # type: ignore[arg-type] # it is not looked at
        with pytest.raises(ConfigurationError):
            events.decode(KEY, typed("x", 1, {}))


@pytest.mark.parametrize(
    "register",
    [
        lambda events: events.register("a")(Blob),
        lambda events: events.register("b")(Person),
        lambda events: events.register(""),
        lambda events: events.register("c", version=0),
        lambda events: events.upcast("a", from_version=1),
        lambda events: events.upcast("a", from_version=0),
    ],
)
def test_contradictions_are_refused(register: Callable[[EventTypes], object]) -> None:
    events = EventTypes()
    events.register("a", version=2)(Person)
    events.upcast("a", from_version=1)(dict)
    with pytest.raises(ConfigurationError):
        register(events)


class TestEntities:
    """Event types and entities together."""

    @staticmethod
    def apply(balance: Decimal, event: Opened | Deposited) -> Decimal:
        return balance + event.amount if isinstance(event, Deposited) else balance

    ACCOUNT = Entity(Decimal(0), apply.__func__, events=EVENTS, snapshot_every=3)  # type: ignore[attr-defined] # it is static

    def test_decisions_and_states_have_objects(self) -> None:
        journals = MemoryJournals(regime=NEVER)
        five = Deposited(amount=Decimal(5), currency=Currency.USD)
        for number in range(1, 5):
            done = journals.update(KEY, self.ACCOUNT, lambda _: [five])
            assert (done.state, done.events) == (Decimal(5 * number), (five,))
        assert journals.state(KEY, self.ACCOUNT) == 20

    def test_events_of_old_versions_are_part_of_the_state(self) -> None:
        journals = MemoryJournals()
        journals.journal(KEY).append([Event(1, typed("account.deposited", 1, {"sum": "2"}).payload)])
        five = Deposited(amount=Decimal(5), currency=Currency.USD)
        assert journals.update(KEY, self.ACCOUNT, lambda _: [five]).state == 7

    def test_an_event_of_a_newer_program_stops_a_decision_and_writes_nothing(self) -> None:
        journals = MemoryJournals()
        journals.journal(KEY).append([Event(1, typed("account.deposited", 4, {}).payload)])
        with pytest.raises(EventTypeError, match=r"Event 1 of journal:account-1, type 'account\.deposited', version 4"):
            journals.update(KEY, self.ACCOUNT, lambda _: [1 // 0])
        assert journals.journal(KEY).pointer() == 1

    def test_a_decision_for_what_is_no_event_is_refused(self) -> None:
        journals = MemoryJournals()
        with pytest.raises(ConfigurationError, match="int is not registered"):
            journals.update(KEY, self.ACCOUNT, lambda _: [1])
        assert journals.journal(KEY).pointer() is None
