"""An action as the JSON of the header `journal.action`, field for field as the original writes it.

    {"append":{"range":{"from":1,"to":5},"origin":"h","version":"0.0.1","payloadType":"json","metadata":{"data":{}}}}
    {"delete":{"to":3,"origin":"h"}}     {"purge":{}}     {"mark":{"id":"…"}}

What is absent is left out. A root that we do not know is an action of a later version and none for us.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import assert_never

import orjson

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.model.errors import ValidationError
from inorder.model.journal import PayloadType, SeqRange
from inorder.model.journal.seq_nr import checked_seq_nr
from inorder.model.message import json_bytes


def to_header(action: Action) -> bytes:
    """The value of an action's header.

    >>> to_header(Delete(3, origin="h"))
    b'{"delete":{"to":3,"origin":"h"}}'
    """
    match action:
        case Append():
            content: dict[str, object] = {"range": {"from": action.range.first, "to": action.range.last}}
            content |= _sender(action)
            content |= {"payloadType": action.payload_type.value, "metadata": with_data(action.metadata)}
            return json_bytes({"append": content})
        case Delete():
            return json_bytes({"delete": {"to": action.to, **_sender(action)}})
        case Purge():
            return json_bytes({"purge": _sender(action)})
        case Mark():
            return json_bytes({"mark": {"id": action.id, **_sender(action)}})
    assert_never(action)


def from_header(value: bytes) -> Action | None:
    """The action of a header; None for one of a later version; raises `ValueError` saying what is wrong with it.

    >>> from_header(b'{"new":{}}'), from_header(b'{"purge":{"origin":"h"}}')
    (None, Purge(origin='h', version=None))
    """
    root = as_object(parsed(value), "the header")
    if "append" in root:
        return _append(as_object(root["append"], "append"))
    if "mark" in root:
        content = as_object(root["mark"], "mark")
        return Mark(_text(content, "id"), **_read_sender(content))
    if "delete" in root:
        content = as_object(root["delete"], "delete")
        return Delete(checked_seq_nr_of(content, "to"), **_read_sender(content))
    if "purge" in root:
        return Purge(**_read_sender(as_object(root["purge"], "purge")))
    return None


def parsed(value: bytes | str) -> object:
    """The value of JSON; what the strict parser refuses may still pass a lenient one, as with the original.

    >>> parsed(b'"\\\\ud800"') == "\\ud800"
    True
    """
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(f"not JSON ({error})") from error


def as_object(value: object, what: str) -> Mapping[str, object]:
    """The value, if it is a JSON object; else `ValueError`."""
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is not a JSON object")


def checked_seq_nr_of(content: Mapping[str, object], field: str) -> int:
    """A sequence number among fields; else `ValueError`."""
    try:
        return checked_seq_nr(content.get(field), field)
    except ValidationError as error:
        raise ValueError(error.message) from error


def with_data(data: object) -> dict[str, object]:
    """`{"data": …}`, or `{}` for None."""
    return {} if data is None else {"data": data}


def data_of(metadata: object) -> object:
    """The data of what `with_data` made; None for anything else, which old versions wrote."""
    return metadata.get("data") if isinstance(metadata, dict) else None


def _append(content: Mapping[str, object]) -> Append:
    numbers = as_object(content.get("range"), "range")
    first, last = checked_seq_nr_of(numbers, "from"), checked_seq_nr_of(numbers, "to")
    if first > last:
        raise ValueError(f"range {first} to {last} ends before it begins")
    kind = content.get("payloadType")
    if not isinstance(kind, str) or kind not in (PayloadType.BINARY, PayloadType.JSON):
        raise ValueError(f"payloadType {kind!r} is neither 'binary' nor 'json'")
    return Append(
        SeqRange(first, last), PayloadType(kind), **_read_sender(content), metadata=data_of(content.get("metadata"))
    )


def _sender(action: Action) -> dict[str, object]:
    fields = {"origin": action.origin, "version": action.version}
    return {name: value for name, value in fields.items() if value is not None}


def _read_sender(content: Mapping[str, object]) -> dict[str, str | None]:
    return {name: None if content.get(name) is None else _text(content, name) for name in ("origin", "version")}


def _text(content: Mapping[str, object], field: str) -> str:
    value = content.get(field)
    if isinstance(value, str):
        return value
    raise ValueError(f"{field} is not text")
