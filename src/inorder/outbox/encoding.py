"""Messages of a call, checked and encoded before anything is written or sent."""

from __future__ import annotations

from collections.abc import Iterable

from inorder.model.errors import ValidationError
from inorder.model.message import Limits, Message, Record, encode


def listed(messages: Iterable[Message] | Message) -> list[Message]:
    """The messages of a call; a single one is refused, since it was meant for another call."""
    if isinstance(messages, Message):
        raise ValidationError("messages", "a Message is not a list.", hint="Use publish(…) for a single one.")
    return list(messages)


def encoded_list(messages: Iterable[Message], limits: Limits) -> list[Record]:
    """The records of a list; one bad message refuses all, with its place in the name of the field."""
    records = []
    for position, message in enumerate(listed(messages)):
        try:
            records.append(encoded("", message, limits))
        except ValidationError as error:
            raise _placed(f"messages[{position}]", error) from error
    return records


def encoded(field: str, message: object, limits: Limits) -> Record:
    """The record of a message; `field` names what was given instead of one."""
    if not isinstance(message, Message):
        raise ValidationError(field, f"a {type(message).__name__} is not a Message.", hint=_MESSAGE_HINT)
    return encode(message, limits)


_MESSAGE_HINT = 'Write Message("topic", key=…, value=…).'


def _placed(place: str, error: ValidationError) -> ValidationError:
    """The same refusal, with its field named from the list down."""
    field = f"{place}.{error.field}" if error.field else place
    return ValidationError(field, error.message.removeprefix(f"{error.field}: "), hint=error.hint)
