"""Where values come from: the file, then variables, then keyword overrides; each value knows its place."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path as File
from typing import Any, Literal

from inorder.model.errors import ConfigurationError
from inorder.settings.kafka import flatten
from inorder.settings.tree import (
    Model,
    Path,
    field_at,
    is_free,
    listed_section_of,
    named_section_of,
    nearest,
    section_of,
    spelt,
)

FILE_DEFAULT = "inorder.toml"
PREFIX = "INORDER_"

# Variables of other parts of inorder that are no settings, with what they are for.
OTHER_VARIABLES = {
    "INORDER_CACHE": "the folder that keeps downloaded jars and binaries",
    "INORDER_IVY_SETTINGS": "an Ivy settings file, for a mirror of the public jar repositories",
    "INORDER_TRACEBACK": "`1` shows the traceback of an error",
}

Source = Literal["default", "file", "env", "override"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Which source a value came from, and where exactly it stands."""

    source: Source
    place: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One value at one key."""

    path: Path
    value: Any
    origin: Origin


def from_file(model: Model, path: str | File | None) -> Iterator[Entry]:
    """The values of the file; a file that was asked for must exist, the default one may be missing."""
    file = File(path or FILE_DEFAULT)
    if path is None and not file.exists():
        return
    place = str(file) if file.is_absolute() or str(file).startswith(".") else f"./{file}"
    yield from entries(model, _parsed(file, place), Origin("file", place))


def _parsed(file: File, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{place} does not exist.", hint="Give an existing file to --config.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{place} is not valid TOML: {error}.", hint="Mend that line.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{place} cannot be read: {error}.", hint="It must be a UTF-8 text file.") from error


def from_environment(model: Model, environ: Mapping[str, str]) -> Iterator[Entry]:
    """The values of INORDER_SECTION__FIELD variables."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES:
            origin = Origin("env", name)
            yield from _from_variable(model, _path_of(model, name), text, origin)


def _path_of(model: Model, name: str) -> Path:
    section, *rest = name.removeprefix(PREFIX).lower().split("__")
    field = model.model_fields.get(section)
    if field and is_free(field.annotation) and rest:
        return section, "__".join(rest).replace("_", ".")
    return section, *rest


def _from_variable(model: Model, path: Path, text: str, origin: Origin) -> Iterator[Entry]:
    field = field_at(model, path)
    if field is None:
        yield from entries(model, _nested(path, text), origin)
        return
    annotation = field.annotation
    is_mapping = is_free(annotation) or section_of(annotation) or getattr(annotation, "__origin__", None) is dict
    is_table = is_mapping or listed_section_of(annotation)
    yield from entries(model, _nested(path, _from_json(text, path, origin) if is_table else text), origin)


def _from_json(text: str, path: Path, origin: Origin) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{spelt(path)} in {origin.place} must be a JSON object: {error}.",
            hint=f'Write it like {origin.place}=\'{{"name": "value"}}\'.',
        ) from error


def _nested(path: Path, value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def entries(model: Model, raw: Mapping[str, Any], origin: Origin) -> Iterator[Entry]:
    """Every value of a nested mapping with its full key; an unknown key is refused, with its place."""
    return _walk(model, model, raw, origin, ())


def _walk(root: Model, model: Model, raw: Mapping[str, Any], origin: Origin, prefix: Path) -> Iterator[Entry]:
    for name, value in raw.items():
        path = (*prefix, name)
        field = model.model_fields.get(name)
        if field is None:
            raise unknown(root, path, origin)
        annotation = field.annotation
        if is_free(annotation):
            table = _table(path, value, origin)
            yield from (Entry((*path, key), item, origin) for key, item in flatten(table).items())
        elif inner := section_of(annotation):
            yield from _walk(root, inner, _table(path, value, origin), origin, path)
        elif inner := named_section_of(annotation):
            for key, item in _table(path, value, origin).items():
                named = (*path, key)
                yield from _walk(root, inner, _table(named, item, origin), origin, named)
        else:
            yield Entry(path, value, origin)


def _table(path: Path, value: Any, origin: Origin) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ConfigurationError(
        f"{spelt(path)} in {origin.place} is a value, but it must be a table of settings.",
        hint=f"Write [{spelt(path)}] and its settings below it.",
    )


def unknown(model: Model, path: Path, origin: Origin) -> ConfigurationError:
    """The refusal of a key that does not exist, with the key that was probably meant."""
    if origin.source == "env" and (other := get_close_matches(origin.place, OTHER_VARIABLES, n=1, cutoff=0.85)):
        return ConfigurationError(f"{origin.place} is unknown; did you mean {other[0]}?", hint=_LOOK)
    meant = nearest(model, path)
    guess = f"; did you mean {spelt(meant)}?" if meant else "."
    return ConfigurationError(f"{spelt(path)} in {origin.place} is unknown{guess}", hint=_LOOK)


_LOOK = "docs/settings.md lists every key; `inorder config check` checks again."
