"""The keys that exist, read off the models, and the one that was probably meant.

A path is the key as a tuple. `kafka` is free, so what follows it is one name with dots; `topics` has a
section per name.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo

Path = tuple[str, ...]
Model = type[BaseModel]


def spelt(path: Path) -> str:
    """The key as one writes it in TOML: parts with dots are quoted."""
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else f'"{part}"' for part in path)


def is_free(annotation: Any) -> bool:
    """Whether a section takes any name and its value, as `kafka` does."""
    return isinstance(annotation, type) and issubclass(annotation, RootModel)


def section_of(annotation: Any) -> Model | None:
    """The model behind a field that is a table of known fields."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model and not is_free(annotation) else None


def named_section_of(annotation: Any) -> Model | None:
    """The model behind a field that is a table of such tables, each under a name of its own."""
    return section_of(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def listed_section_of(annotation: Any) -> Model | None:
    """The model behind a field that is a list of such tables."""
    return section_of(get_args(annotation)[0]) if get_origin(annotation) is list else None


def field_at(model: Model, path: Path) -> FieldInfo | None:
    """The field a path leads to, or None where it leads nowhere or into a free section."""
    if not path or path[0] not in model.model_fields:
        return None
    field = model.model_fields[path[0]]
    if len(path) == 1:
        return field
    named = named_section_of(field.annotation)
    inner, rest = (named, path[2:]) if named else (section_of(field.annotation), path[1:])
    return field_at(inner, rest) if inner else None


def known(model: Model, prefix: Path = ()) -> Iterator[Path]:
    """Every key of a model, sections and fields alike, in the order of the file."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        yield path
        if inner := section_of(field.annotation):
            yield from known(inner, path)
        if inner := named_section_of(field.annotation):
            yield from known(inner, (*path, "NAME"))


def nearest(model: Model, path: Path) -> Path | None:
    """The known key that a wrong one looks like: among its neighbours, by its last part, then anywhere."""
    paths = list(known(model))
    neighbours = {other[-1]: other for other in paths if other[:-1] == path[:-1]}
    last_parts = {other[-1]: other for other in paths}
    whole = {".".join(other): other for other in paths}
    for candidates, wanted in ((neighbours, path[-1]), (last_parts, path[-1]), (whole, ".".join(path))):
        if found := get_close_matches(wanted, candidates, n=1, cutoff=0.7):
            return candidates[found[0]]
    return None
