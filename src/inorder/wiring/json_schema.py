"""The JSON Schema of a topic, from its file."""

from __future__ import annotations

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings


def schema_text(settings: Settings, topic: str) -> str:
    """The JSON Schema of a topic, empty where it has none."""
    file = settings.schema_file(topic)
    if file is None:
        return ""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"topics.{topic}.json_schema names {str(file)!r}, which cannot be read: {error}.",
            hint="Name a UTF-8 file, from the folder of the settings file.",
        ) from error
