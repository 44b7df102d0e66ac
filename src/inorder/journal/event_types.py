"""Event types: classes with a name and a version, as payloads of a journal and back.

    EVENTS = EventTypes()

    @EVENTS.register("account.deposited", version=2)
    @dataclass(frozen=True)
    class Deposited:
        amount: Decimal
        currency: str

    @EVENTS.upcast("account.deposited", from_version=1)
    def add_currency(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "currency": "EUR"}

**The form.** Name and version are part of the payload, which is JSON:

    {"type":"account.deposited","version":2,"data":{"amount":"5.00","currency":"EUR"}}

To Kafka Journal, to the store and to `inorder journal read` that is a JSON payload like any other. Tags would have been
the other place: but they are the application's, without an order, and a version in them would look like any tag.

**Versions.** A journal keeps what was written, for as long as it lives. An event of version n is read by today's class:
upcasters take its data from n to n+1, up to the version that is registered. They work on JSON, since the class of
version n is gone. An event of a later version than the registered one is not guessed at.

**What cannot be read is an error**, never left out: a state without one of its events is wrong. `EventTypeError` names
type, version, journal and number. It is not damage (`DamagedRecordError`): the replicator stores such an event, and
code that knows its type reads it. So deploy readers before writers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import orjson

from inorder.model.errors import ConfigurationError, EventTypeError, ValidationError
from inorder.model.journal import Event, Key, Payload, SeqNr, json_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

C = TypeVar("C")
Data: TypeAlias = Any
"""The JSON of an event, an object for classes with fields."""
Upcaster: TypeAlias = Callable[[Data], Data]
U = TypeVar("U", bound=Upcaster)


class EventType(NamedTuple):
    """The name of a class of events, and the version that it has today."""

    name: str
    version: int
    kind: type


class EventTypes:
    """The event types of an application; register all of them before the first is read.

    Classes are dataclasses, pydantic models, or whatever else pydantic can write and read as JSON. Safe for use by many
    threads.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, EventType] = {}
        self._by_kind: dict[type, EventType] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def register(self, name: str, *, version: int = 1) -> Callable[[type[C]], type[C]]:
        """Registers a class under a name that never changes; raise `version` when the form of its data does."""
        if not name or version < 1:
            raise ConfigurationError(
                f"Event type {name!r}, version {version!r}: a name and a number from 1 are needed."
            )
        if name in self._by_name:
            raise ConfigurationError(f"Event type {name!r} is registered twice.", hint="Give each class its own name.")

        def add(kind: type[C]) -> type[C]:
            if kind in self._by_kind:
                raise ConfigurationError(f"{kind.__name__} is event type {self._by_kind[kind].name!r} already.")
            self._by_name[name] = self._by_kind[kind] = EventType(name, version, kind)
            return kind

        return add

    def upcast(self, name: str, *, from_version: int) -> Callable[[U], U]:
        """Registers a function that turns data of a version into data of the next one."""
        if from_version < 1:
            raise ConfigurationError(f"Upcaster of {name!r}: {from_version!r} is not a version.")
        if (name, from_version) in self._upcasters:
            raise ConfigurationError(f"Event type {name!r} has two upcasters from version {from_version}.")

        def add(function: U) -> U:
            self._upcasters[name, from_version] = function
            return function

        return add

    def event(self, seq_nr: SeqNr, event: object, tags: Iterable[str] = ()) -> Event:
        """An event for `Journal.append`."""
        return Event(seq_nr, self.encode(event), frozenset(tags))

    def encode(self, event: object) -> Payload:
        """The payload of an event; raises `ConfigurationError` if its class is not registered."""
        found = self._by_kind.get(type(event))
        if found is None:
            raise ConfigurationError(
                f"{type(event).__name__} is not registered as an event type.",
                hint=f"Registered are: {', '.join(sorted(self._by_name)) or 'none'}.",
            )
        try:
            data = to_json(found.kind, event)
        except ConfigurationError:
            raise
        except Exception as error:
            raise ValidationError("event", f"a {found.name} cannot be written as JSON: {error}") from error
        return {"type": found.name, "version": found.version, "data": data}

    def decode(self, key: Key, event: Event) -> Any:
        """The event of a payload, as an object of today's class; raises `EventTypeError` if there is none for it."""
        content = json_value(event.payload)
        name, version = (content.get("type"), content.get("version")) if isinstance(content, Mapping) else (None, None)
        if not isinstance(content, Mapping) or not isinstance(name, str) or not _is_version(version):
            raise _error(
                key, event, name, version, "it has no type and version", "It was not written with event types."
            )
        assert isinstance(version, int)  # noqa: S101 - for the type checker
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise _error(key, event, name, version, "the type is unknown", f"Register it. Registered are: {known}.")
        if version > found.version:
            what = f"this program knows versions up to {found.version}"
            raise _error(key, event, name, version, what, "A newer program wrote it: upgrade this one.")
        data = content.get("data")
        for step in range(version, found.version):
            upcaster = self._upcasters.get((name, step))
            if upcaster is None:
                what = f"there is no upcaster from version {step} to {step + 1}"
                raise _error(key, event, name, version, what, f"Add one: `upcast({name!r}, from_version={step})`.")
            try:
                data = upcaster(data)
            except Exception as error:
                what = f"the upcaster from version {step} failed: {type(error).__name__}: {error}"
                raise _error(key, event, name, version, what, "Fix the upcaster.") from error
        try:
            return from_json(found.kind, data)
        except ConfigurationError:
            raise
        except Exception as error:
            what = f"its data does not fit {found.kind.__name__}: {error}"
            hint = "If the class has changed, raise its version and add an upcaster."
            raise _error(key, event, name, version, what, hint) from error


def type_name(payload: Payload) -> str | None:
    """The name of the type in a payload; None if it has none."""
    content = json_value(payload)
    name = content.get("type") if isinstance(content, Mapping) else None
    return name if isinstance(name, str) else None


def to_json(kind: Hashable, value: object) -> Any:
    """A value of a type as JSON: what pydantic makes of it. Raises `ConfigurationError` for a type it does not know."""
    return _adapter(kind).dump_python(value, mode="json")


def from_json(kind: Hashable, content: object) -> Any:
    """The value of a type, by pydantic's rules for JSON, which are not those for Python objects."""
    return _adapter(kind).validate_json(orjson.dumps(content))


@lru_cache(maxsize=1000)
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    # Slow to import, and not all who import journals need it.
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", kind))
    except PydanticUserError as error:
        raise ConfigurationError(f"pydantic cannot write {kind!r} as JSON: {error.message}") from error
    if not adapter.pydantic_complete:
        raise ConfigurationError(
            f"The types in the annotations of {kind!r} are not found.", hint="Define them at the top of their module."
        )
    return adapter


def _is_version(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and version >= 1


def _error(key: Key, event: Event, name: object, version: object, what: str, hint: str) -> EventTypeError:
    return EventTypeError(
        f"Event {event.seq_nr} of {key}, type {name!r}, version {version!r}, cannot be read: {what}.",
        hint=hint,
        event_type=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) else None,
        journal=str(key),
        seq_nr=event.seq_nr,
    )
