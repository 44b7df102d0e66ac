"""Where values come from: the file, then variables, then keyword overrides.

Each value carries its key and its origin, so that an error names both, and `inorder config show` shows where a setting
comes from. Known keys are read off the models; an unknown key is refused with the nearest known one. Pydantic's errors
are rewritten as one line each: the key, the value, where it comes from, and what is expected.

A key is a tuple of its parts. `kafka` is a free section: what follows it is one name with dots. `topics` has one
section per name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path as File
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, RootModel, SecretStr
from pydantic import ValidationError as PydanticError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from inorder.model.errors import ConfigurationError
from inorder.model.secrets import MASK, is_secret, mask_url, mask_value
from inorder.settings.section import SecretUrl
from inorder.settings.servers import flatten

KeyPath = tuple[str, ...]
Model = type[BaseModel]


def key_text(path: KeyPath) -> str:
    """The key as written in TOML: parts with dots are quoted."""
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else f'"{part}"' for part in path)


def is_free(annotation: Any) -> bool:
    """Whether a section accepts any name, as `kafka` does."""
    return isinstance(annotation, type) and issubclass(annotation, RootModel)


def section_of(annotation: Any) -> Model | None:
    """The model of a field that is a table with known fields."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model and not is_free(annotation) else None


def named_section_of(annotation: Any) -> Model | None:
    """The model of a field that is a table of named tables, as `topics` is."""
    return section_of(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def listed_section_of(annotation: Any) -> Model | None:
    """The model of a field that is a list of tables."""
    return section_of(get_args(annotation)[0]) if get_origin(annotation) is list else None


def field_at(model: Model, path: KeyPath) -> FieldInfo | None:
    """The field at a path; None where there is none, or in a free section."""
    if not path or path[0] not in model.model_fields:
        return None
    field = model.model_fields[path[0]]
    if len(path) == 1:
        return field
    named = named_section_of(field.annotation)
    inner, rest = (named, path[2:]) if named else (section_of(field.annotation), path[1:])
    return field_at(inner, rest) if inner else None


def known_keys(model: Model, prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key of a model, sections and fields, in the order of the file."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        yield path
        if inner := section_of(field.annotation):
            yield from known_keys(inner, path)
        if inner := named_section_of(field.annotation):
            yield from known_keys(inner, (*path, "NAME"))


def nearest_key(model: Model, path: KeyPath) -> KeyPath | None:
    """The known key that an unknown one resembles: among its siblings first, then by its last part, then anywhere."""
    paths = list(known_keys(model))
    siblings = {other[-1]: other for other in paths if other[:-1] == path[:-1]}
    last_parts = {other[-1]: other for other in paths}
    whole = {".".join(other): other for other in paths}
    for candidates, wanted in ((siblings, path[-1]), (last_parts, path[-1]), (whole, ".".join(path))):
        if found := get_close_matches(wanted, candidates, n=1, cutoff=0.7):
            return candidates[found[0]]
    return None


FILE_DEFAULT = "inorder.toml"
PREFIX = "INORDER_"

# Variables that are not settings, with their purpose.
OTHER_VARIABLES = {
    "INORDER_ALLOW_PLUGINS": (
        "`1` allows properties of [kafka] that load code into the process or run a command: `plugin.library.paths`, "
        "`ssl.engine.location`, `ssl.providers` and `sasl.kerberos.kinit.cmd`"
    ),
    "INORDER_CACHE": "the folder for downloaded jars and binaries",
    "INORDER_IVY_SETTINGS": "an Ivy settings file, for a mirror of the public jar repositories",
    "INORDER_TRACEBACK": "`1` shows the traceback of an error",
}

Source = Literal["default", "file", "env", "override"]


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """The source of a value, and the file, variable or override that holds it."""

    source: Source
    place: str


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """One value at one key."""

    path: KeyPath
    value: Any
    origin: SettingOrigin


def read_file(model: Model, path: str | File | None) -> Iterator[SourcedValue]:
    """The values of the file; a file that is named must exist, the default one may be missing."""
    file = File(path or FILE_DEFAULT)
    if path is None and not file.exists():
        return
    place = str(file) if file.is_absolute() or str(file).startswith(".") else f"./{file}"
    yield from read_entries(model, _parsed(file, place), SettingOrigin("file", place))


def _parsed(file: File, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{place} does not exist.", hint="Give an existing file to --config.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{place} cannot be read: {error}.", hint="It must be a UTF-8 text file.") from error
    except RecursionError as error:
        raise _too_deep(place) from error
    except ValueError as error:
        raise ConfigurationError(f"{place} is not valid TOML: {error}.", hint="Fix that line.") from error


def read_environment(model: Model, environ: Mapping[str, str]) -> Iterator[SourcedValue]:
    """The values of INORDER_SECTION__FIELD variables."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES:
            origin = SettingOrigin("env", name)
            yield from _from_variable(model, _path_of(model, name), text, origin)


def _path_of(model: Model, name: str) -> KeyPath:
    section, *rest = name.removeprefix(PREFIX).lower().split("__")
    field = model.model_fields.get(section)
    if field and is_free(field.annotation) and rest:
        return section, "__".join(rest).replace("_", ".")
    return section, *rest


def _from_variable(model: Model, path: KeyPath, text: str, origin: SettingOrigin) -> Iterator[SourcedValue]:
    field = field_at(model, path)
    if field is None:
        yield from read_entries(model, _nested(path, text), origin)
        return
    annotation = field.annotation
    is_mapping = is_free(annotation) or section_of(annotation) or getattr(annotation, "__origin__", None) is dict
    is_table = is_mapping or listed_section_of(annotation)
    yield from read_entries(model, _nested(path, _from_json(text, path, origin) if is_table else text), origin)


def _from_json(text: str, path: KeyPath, origin: SettingOrigin) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise _too_deep(origin.place) from error
    except ValueError as error:
        raise ConfigurationError(
            f"{key_text(path)} in {origin.place} must be a JSON object: {error}.",
            hint=f'Write it like {origin.place}=\'{{"name": "value"}}\'.',
        ) from error


def _nested(path: KeyPath, value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def read_entries(model: Model, raw: Mapping[str, Any], origin: SettingOrigin) -> Iterator[SourcedValue]:
    """Every value of a nested mapping with its full key; raises `ConfigurationError` for an unknown key."""
    if _is_deeper(raw, _MOST_LEVELS):
        raise _too_deep(origin.place)
    return _walk(model, model, raw, origin, ())


_MOST_LEVELS = 32
"""Of tables and lists, so that everything behind may use recursion; unquoted dots of a name are levels, too."""


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return levels < 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _too_deep(place: str) -> ConfigurationError:
    return ConfigurationError(f"{place} is nested more than {_MOST_LEVELS} levels deep.", hint=_LOOK)


def _walk(
    root: Model, model: Model, raw: Mapping[str, Any], origin: SettingOrigin, prefix: KeyPath
) -> Iterator[SourcedValue]:
    for name, value in raw.items():
        path = (*prefix, name)
        field = model.model_fields.get(name)
        if field is None:
            raise unknown_key(root, path, origin)
        annotation = field.annotation
        if is_free(annotation):
            table = _table(path, value, origin)
            yield from (SourcedValue((*path, key), item, origin) for key, item in flatten(table).items())
        elif inner := section_of(annotation):
            yield from _walk(root, inner, _table(path, value, origin), origin, path)
        elif inner := named_section_of(annotation):
            for key, item in _table(path, value, origin).items():
                named = (*path, key)
                yield from _walk(root, inner, _table(named, item, origin), origin, named)
        else:
            yield SourcedValue(path, value, origin)


def _table(path: KeyPath, value: Any, origin: SettingOrigin) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    key = _shorten(key_text(path))
    raise ConfigurationError(
        f"{key} in {origin.place} is a value, but it must be a table of settings.",
        hint=f"Write [{key}] and its settings below it.",
    )


def unknown_key(model: Model, path: KeyPath, origin: SettingOrigin) -> ConfigurationError:
    """The error for an unknown key, with the key that was probably meant."""
    if origin.source == "env" and (other := get_close_matches(origin.place, OTHER_VARIABLES, n=1, cutoff=0.85)):
        return ConfigurationError(f"{origin.place} is unknown; did you mean {other[0]}?", hint=_LOOK)
    meant = nearest_key(model, path)
    guess = f"; did you mean {_shorten(key_text(meant))}?" if meant else "."
    return ConfigurationError(f"{_shorten(key_text(path))} in {origin.place} is unknown{guess}", hint=_LOOK)


_LOOK = "docs/settings.md lists every key; `inorder config check` checks again."


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
    "missing": "a value, as it has no default",
    "list_type": "a list",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def refusal(model: Model, error: PydanticError, entries: Mapping[KeyPath, SourcedValue]) -> ConfigurationError:
    """One `ConfigurationError` with a line for each of pydantic's errors."""
    lines = list(dict.fromkeys(_line(model, finding, entries) for finding in error.errors(include_url=False)))
    if (more := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES:] = [f"There are {more} more errors."]
    return ConfigurationError("\n".join(lines), hint="Fix it, then run `inorder config check`.")


_MOST_LINES = 12
_MOST_CHARACTERS = 300


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _line(model: Model, finding: ErrorDetails, entries: Mapping[KeyPath, SourcedValue]) -> str:
    loc = tuple(str(part) for part in finding["loc"])
    context = finding.get("ctx", {})
    if finding["type"] in ("reserved", "property"):
        path = (*loc, context["name"])
        return f"{_shorten(key_text(path))}{_in_place(entries.get(path))} {finding['msg']}."
    if finding["type"] == "contradiction":
        return finding["msg"]
    path, entry = _entry_at(loc, entries)
    subject = f"{_shorten(key_text(loc))} = {_shown(model, path, loc, finding['input'])}{_in_place(entry)}"
    return f"{subject} is wrong: expected {_expected(finding)}."


def _entry_at(loc: KeyPath, entries: Mapping[KeyPath, SourcedValue]) -> tuple[KeyPath, SourcedValue | None]:
    for length in range(len(loc), 0, -1):
        if entry := entries.get(loc[:length]):
            return loc[:length], entry
    return loc, None


def _in_place(entry: SourcedValue | None) -> str:
    return f" in {entry.origin.place}" if entry else ""


def _shown(model: Model, path: KeyPath, loc: KeyPath, value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    field = field_at(model, path)
    if field is not None and SecretUrl in (field.annotation, *get_args(field.annotation)):
        return repr(mask_url(value)) if isinstance(value, str) and "://" in value else MASK
    if any(is_secret(part) for part in loc):
        return MASK
    return _shorten(repr(mask_value(value)))


def _expected(finding: ErrorDetails) -> str:
    context = finding.get("ctx", {})
    if finding["type"] != "literal_error":
        return _EXPECTED.get(finding["type"], finding["msg"]).format(**context)
    values = context["expected"].replace("'", "").replace(" or ", ", ")
    nearest = get_close_matches(str(finding["input"]), values.split(", "), n=1)
    return f"one of {values}" + (f"; the nearest is {nearest[0]}" if nearest else "")
