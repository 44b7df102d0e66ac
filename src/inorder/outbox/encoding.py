"""Messages of a call, checked and encoded before anything is written or sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from inorder.model.errors import ValidationError
from inorder.model.message import Limits, Message, Record, encode


class Refusal(Protocol):
    """Why the readers of a topic would reject a record: a stable code for programs, a detail for people."""

    @property
    def code(self) -> str: ...

    @property
    def detail(self) -> str: ...


Checks: TypeAlias = Mapping[str, Callable[[bytes | None, bytes | None], Refusal | None]]
"""By topic, what looks at the key and the value of each record; a topic without one takes everything."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a message must keep: Kafka's limits, and what the readers of its topic ask for."""

    limits: Limits = field(default_factory=Limits)
    checks: Checks = field(default_factory=dict)


def listed(messages: Iterable[Message] | Message) -> list[Message]:
    """The messages of a call; a single one is refused, since it was meant for another call."""
    if isinstance(messages, Message):
        raise ValidationError("messages", "a Message is not a list.", hint="Use publish(…) for a single one.")
    return list(messages)


def encoded_list(messages: Iterable[Message], rules: Rules) -> list[Record]:
    """The records of a list; one bad message refuses all, with its place in the name of the field."""
    records = []
    for position, message in enumerate(listed(messages)):
        try:
            records.append(encoded("", message, rules))
        except ValidationError as error:
            raise _placed(f"messages[{position}]", error) from error
    return records


def encoded(field: str, message: object, rules: Rules) -> Record:
    """The record of a message; `field` names what was given instead of one."""
    if not isinstance(message, Message):
        raise ValidationError(field, f"a {type(message).__name__} is not a Message.", hint=_MESSAGE_HINT)
    record = encode(message, rules.limits)
    if (check := rules.checks.get(record.topic)) and (refusal := check(record.key, record.value)):
        raise ValidationError("value", f"{refusal.detail} ({refusal.code})", hint=_hint(record), rule=refusal.code)
    return record


_MESSAGE_HINT = 'Write Message("topic", key=…, value=…).'


def _hint(record: Record) -> str:
    return f"Readers of topic {record.topic!r} would reject it: docs/pipeline.md has the rules of messages."


def _placed(place: str, error: ValidationError) -> ValidationError:
    """The same refusal, with its field named from the list down."""
    field = f"{place}.{error.field}" if error.field else place
    return ValidationError(field, error.message.removeprefix(f"{error.field}: "), hint=error.hint, rule=error.rule)
