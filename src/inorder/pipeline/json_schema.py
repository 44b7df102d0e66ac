"""The JSON Schema of a topic: what publisher and consumer hold a document against, compiled once a process.

The text of the schema travels, not the validator: a mapping is pickled to Spark's workers, and equal texts share one
validator wherever they arrive. A check costs about half a microsecond. Nothing is fetched: a schema that refers to
another file is refused when it is compiled, because what a publisher checks must not hang on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from inorder.model.errors import ConfigurationError

SchemaCheck: TypeAlias = Callable[[object], str | None]
"""What is wrong with a document, for people; None where it is valid."""

_SHOWN = 200


@cache
def schema_check(text: str) -> SchemaCheck:
    """The check of a schema; raises `ConfigurationError` where it is none, or where the extra is not installed."""
    validator = _compiled(text)

    def check(document: object) -> str | None:
        return None if validator.is_valid(document) else _flaw(next(validator.iter_errors(document)))

    return check


def _compiled(text: str) -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise ConfigurationError(
            "A topic has a json_schema, and the package jsonschema-rs, which reads it, is not installed.",
            hint="Install it with `pip install 'inorder[schema]'`.",
        ) from error
    try:
        return jsonschema_rs.validator_for(text, offline=True)
    except ValueError as error:
        raise ConfigurationError(
            f"The json_schema of a topic is none: {' '.join(str(error).split())}",
            hint="Mend the file; it must be one JSON Schema, complete in itself.",
        ) from error


def _flaw(error: Any) -> str:
    """Which field, which rule, and the library's words, which name the value."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    subject = f"The field {place!r}" if place else "The value"
    rule = next((part for part in reversed(error.schema_path) if isinstance(part, str)), "")
    words = error.message if len(error.message) <= _SHOWN else f"{error.message[:_SHOWN]}…"
    return f"{subject} breaks the rule {rule!r} of the topic's schema: {words}."
