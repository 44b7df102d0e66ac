"""What a publisher refuses before it sends, by the code that makes a dead letter of the same record at the consumer.

A check is a pure function of a record's bytes, built once for a topic. So the two ends cannot disagree about a message:
the error of the one and the dead letter of the other have the same code and the same detail.

A message without a key, for a topic that feeds a table, gets the key of its row here (`TableCheck.derive_key`): the
Kafka key decides the partition, and only one partition has an order.
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
from inorder.pipeline.mapping import KeyReader, Refused, TableMapping, encode_key, shorten
from inorder.settings import Settings

RecordCheck: TypeAlias = Callable[[bytes | None, bytes | None], Rejected | None]
"""Why a record of this key and value would be rejected; None if it is valid."""


class TableCheck:
    """The check of a topic that feeds a table; it also gives a record without a key the key of its row."""

    def __init__(self, mapping: TableMapping, *, refuses: bool = True) -> None:
        """Without `refuses` it only derives keys."""
        self._decode = Decoder(mapping).decode
        self._keys = KeyReader(mapping)
        self._derives = mapping.keyless == "reject"
        self._refuses = refuses

    def __call__(self, key: bytes | None, value: bytes | None) -> Rejected | None:
        decoded = self._decode(key, value) if self._refuses else None
        return decoded if isinstance(decoded, Rejected) else None

    def derive_key(self, value: bytes | None) -> bytes | None:
        """The key that decides the partition of a record, from its value; None where the value has no valid one.

        Without a key the records of a row are spread over the partitions, and the pipeline cannot order them.
        """
        if value is None or not self._derives:
            return None
        try:
            document = orjson.loads(value)
            return encode_key(self._keys.from_document(None, document)) if type(document) is dict else None
        except (orjson.JSONDecodeError, Refused):
            return None


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
        checks = message_checks(settings) if settings.publisher.checks_messages else _only_keys(settings)
        super().__init__(settings, checks, on_delivery=on_delivery)


def _only_keys(settings: Settings) -> Checks:
    return {mapping.topic: TableCheck(mapping, refuses=False) for mapping in table_mappings(settings)}


def message_checks(settings: Settings) -> Checks:
    """The checks by topic: of topics that feed a table and of those with a JSON Schema.

    `inorder.Publisher` builds them itself; `inorder.Outbox("outbox", checks=inorder.message_checks(settings))` takes
    them. A schema that cannot be read raises `ConfigurationError`, here and not at the first message.
    """
    checks: dict[str, RecordCheck] = {
        topic: document_check(schema) for topic in settings.topics if (schema := schema_text(settings, topic))
    }
    return {**checks, **{mapping.topic: TableCheck(mapping) for mapping in table_mappings(settings)}}
