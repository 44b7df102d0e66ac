"""What publishers check before they send, from the settings of the pipeline and of the topics."""

from __future__ import annotations

from inorder.outbox.encoding import Checks
from inorder.pipeline.checking import RecordCheck, document_check, table_check
from inorder.settings import Settings
from inorder.wiring.json_schema import schema_text
from inorder.wiring.upsert import table_mappings


def message_checks(settings: Settings) -> Checks:
    """The checks by topic: of topics that feed a table and of those with a JSON Schema.

    `inorder.Publisher` makes them itself; `inorder.Outbox("outbox", checks=inorder.message_checks(settings))` takes
    them. A schema that cannot be read is a `ConfigurationError`, here and not at the first message.
    """
    checks: dict[str, RecordCheck] = {
        topic: document_check(schema) for topic in settings.topics if (schema := schema_text(settings, topic))
    }
    return {**checks, **{mapping.topic: table_check(mapping) for mapping in table_mappings(settings)}}
