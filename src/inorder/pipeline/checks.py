"""What a publisher refuses before it sends, by the code that makes a dead letter of the same record at the consumer.

A check is a pure function of a record's bytes, built once for a topic. So the two ends cannot disagree about a message:
the error of the one and the dead letter of the other have the same code and the same detail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import orjson

from inorder.outbox.outbox import Checks
from inorder.outbox.publisher import MessagePublisher
from inorder.outbox.request import OnDelivery
from inorder.pipeline.decoding import Decoder, Rejected, schema_check
from inorder.pipeline.job import schema_text, table_mappings
from inorder.pipeline.mapping import TableMapping, shorten
from inorder.settings import Settings

RecordCheck: TypeAlias = Callable[[bytes | None, bytes | None], Rejected | None]
"""Why a record of this key and value would be rejected; None if it is valid."""


def table_check(mapping: TableMapping) -> RecordCheck:
    """The check of a topic that feeds a table."""
    decode = Decoder(mapping).decode

    def check(key: bytes | None, value: bytes | None) -> Rejected | None:
        decoded = decode(key, value)
        return decoded if isinstance(decoded, Rejected) else None

    return check


def document_check(schema: str) -> RecordCheck:
    """The check of a topic that has a schema and feeds no table; a record without a value passes."""
    flaw_of = schema_check(schema)

    def check(_key: bytes | None, value: bytes | None) -> Rejected | None:
        if value is None:
            return None
        try:
            flaw = flaw_of(orjson.loads(value))
        except orjson.JSONDecodeError as error:
            return Rejected("not-json", f"{error}; it begins with {shorten(value)}.")
        return Rejected("schema-mismatch", flaw) if flaw else None

    return check


class Publisher(MessagePublisher):
    """A `MessagePublisher` that refuses what the pipeline of a topic would reject (`publisher.checks_messages`)."""

    def __init__(self, settings: Settings, *, on_delivery: OnDelivery | None = None) -> None:
        checks = message_checks(settings) if settings.publisher.checks_messages else {}
        super().__init__(settings, checks, on_delivery=on_delivery)


def message_checks(settings: Settings) -> Checks:
    """The checks by topic: of topics that feed a table and of those with a JSON Schema.

    `inorder.Publisher` builds them itself; `inorder.Outbox("outbox", checks=inorder.message_checks(settings))` takes
    them. A schema that cannot be read raises `ConfigurationError`, here and not at the first message.
    """
    checks: dict[str, RecordCheck] = {
        topic: document_check(schema) for topic in settings.topics if (schema := schema_text(settings, topic))
    }
    return {**checks, **{mapping.topic: table_check(mapping) for mapping in table_mappings(settings)}}
