"""Pydantic's findings in inorder's words: the key, the value, where it stands, what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import SecretStr
from pydantic import ValidationError as PydanticError
from pydantic_core import ErrorDetails

from inorder.model.errors import ConfigurationError
from inorder.settings.kafka import is_secret
from inorder.settings.section import Planned
from inorder.settings.sources import Entry
from inorder.settings.tree import Model, Path, field_at, spelt
from inorder.settings.url import masked

_URLS = (("database", "url"), ("database", "read_only_url"), ("redis", "url"))

_EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_parsing_size": "a smaller number",
    "string_type": "text",
    "string_too_long": "{max_length} characters or less",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "credentials": "a file with user and password: {text}",
    "string_pattern_mismatch": "letters, digits and . _ : / @ -",
    "too_short": "at least one entry",
    "extra_forbidden": "no key of this name",
    "missing": "a value: it has no default",
    "list_type": "a list",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def refusal(model: Model, error: PydanticError, entries: Mapping[Path, Entry]) -> ConfigurationError:
    """One `ConfigurationError` that tells all findings, a line each."""
    lines = [_line(model, finding, entries) for finding in error.errors(include_url=False)]
    return ConfigurationError("\n".join(dict.fromkeys(lines)), hint="Mend it, then run `inorder config check`.")


def _line(model: Model, finding: ErrorDetails, entries: Mapping[Path, Entry]) -> str:
    loc = tuple(str(part) for part in finding["loc"])
    context = finding.get("ctx", {})
    if finding["type"] in ("reserved", "property"):
        path = (*loc, context["name"])
        return f"{spelt(path)}{_standing(entries.get(path))} {finding['msg']}."
    if finding["type"] == "contradiction":
        return finding["msg"]
    path, entry = _entry_at(loc, entries)
    subject = f"{spelt(loc)} = {_shown(path, loc, finding['input'])}{_standing(entry)}"
    return f"{subject} {_verdict(_metadata(model, path), finding)}."


def _entry_at(loc: Path, entries: Mapping[Path, Entry]) -> tuple[Path, Entry | None]:
    for length in range(len(loc), 0, -1):
        if entry := entries.get(loc[:length]):
            return loc[:length], entry
    return loc, None


def _standing(entry: Entry | None) -> str:
    return f" in {entry.origin.place}" if entry else ""


def _shown(path: Path, loc: Path, value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if path in _URLS:
        return repr(masked(value)) if isinstance(value, str) and "://" in value else "***"
    if is_secret(loc[-1]):
        return "***"
    return repr(value)


def _metadata(model: Model, path: Path) -> list[Any]:
    field = field_at(model, path)
    return list(field.metadata) if field else []


def _meant(value: object, known: list[str]) -> str:
    found = get_close_matches(str(value), known, n=1)
    return f"; the nearest is {found[0]}" if found else ""


def _verdict(metadata: list[Any], finding: ErrorDetails) -> str:
    context = finding.get("ctx", {})
    if finding["type"] == "not_built":
        return f"is not built yet; this version has: {context['built']}"
    if finding["type"] == "literal_error":
        built = context["expected"].replace("'", "").replace(" or ", ", ")
        if any(finding["input"] in item.values for item in metadata if isinstance(item, Planned)):
            return f"is not built yet; this version has: {built}"
        return f"is wrong: expected one of {built}{_meant(finding['input'], built.split(', '))}"
    expected = _EXPECTED.get(finding["type"], finding["msg"]).format(**context)
    return f"is wrong: expected {expected}"
