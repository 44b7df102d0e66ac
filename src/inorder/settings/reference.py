"""docs/settings.md, written from the models, so that it cannot be out of date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from inorder.settings.root import Settings
from inorder.settings.section import Planned
from inorder.settings.servers import BOOTSTRAP_DEFAULT, RESERVED
from inorder.settings.sources import OTHER_VARIABLES, PREFIX, Model, Path, is_free, named_section_of, section_of

_HEAD = """\
# Settings

This page is generated from the code by `make docs`; change the descriptions there.

inorder reads `inorder.toml` in the current folder, or the file after `--config`. Variables named
`INORDER_SECTION__FIELD` go over the file, and keyword overrides of `Settings.load` and command options go
over both. An unknown key is an error that names the nearest known one. `inorder config show` prints what
is in force and where it came from; secrets are masked everywhere.

In a variable two underscores separate section and field: `INORDER_PIPELINE__UPSERT__TOPIC`. A table is JSON:
`INORDER_TOPICS={"orders": {"partitioner": "id-modulo"}}`.
"""

_KAFKA = f"""\
Any property of librdkafka passes through, quoted, because its name has dots:

```toml
[kafka]
"bootstrap.servers" = "{BOOTSTRAP_DEFAULT}"
"security.protocol" = "sasl_ssl"
```

In a variable each dot is one underscore: `INORDER_KAFKA__BOOTSTRAP_SERVERS` sets `"bootstrap.servers"`, whose
default is `{BOOTSTRAP_DEFAULT}`. Values of `*.password`, `*.secret`, `ssl.key.pem` and
`sasl.oauthbearer.config` are masked.

These are refused, because inorder sets them itself:
"""


def settings_page() -> str:
    """The whole page."""
    lines = [_HEAD, *_sections(Settings, ()), "## Other variables\n"]
    lines += [f"- `{name}`: {purpose}." for name, purpose in OTHER_VARIABLES.items()]
    return "\n".join(lines) + "\n"


def _sections(model: Model, prefix: Path) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        if is_free(field.annotation):
            yield f"## [{name}]\n\n{_KAFKA}"
            yield "\n".join(f"- `{key}`: {reason}" for key, reason in RESERVED.items()) + "\n"
        elif inner := section_of(field.annotation):
            yield from _section(inner, path)
        elif inner := named_section_of(field.annotation):
            yield from _section(inner, (*path, "NAME"))


def _section(model: Model, path: Path) -> Iterator[str]:
    yield f"## [{'.'.join(path)}]\n\n{model.__doc__}\n"
    for name, field in model.model_fields.items():
        if not section_of(field.annotation):
            yield from _field((*path, name), field)
    yield from _sections_below(model, path)


def _sections_below(model: Model, path: Path) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if inner := section_of(field.annotation):
            yield from _section(inner, (*path, name))


def _field(path: Path, field: FieldInfo) -> Iterator[str]:
    variable = PREFIX + "__".join(path).upper()
    yield f"### {'.'.join(path)}\n"
    yield f"{field.description}\n"
    yield f"- Default: {_default(field)}"
    if values := _values(field):
        yield values
    yield f"- Variable: `{variable}`\n"


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None or is_free(field.annotation):
        return "none"
    return f"`{json.dumps(value)}`"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is not Literal:
        return ""
    built = ", ".join(f"`{value}`" for value in get_args(field.annotation))
    planned = [value for item in field.metadata if isinstance(item, Planned) for value in item.values]
    later = ", ".join(f"`{value}`" for value in planned)
    return f"- Values: {built}" + (f". Not built yet, and refused: {later}" if later else "")
