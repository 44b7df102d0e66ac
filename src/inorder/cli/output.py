"""Data goes to stdout, messages about it to stderr, so a pipe carries data only."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.model.printable import CONTROLS, escape_controls

if TYPE_CHECKING:
    from inorder.app import App
    from inorder.engines.job_status import JobService, JobServices
    from inorder.settings import Settings


def say(text: str) -> None:
    """A message for the person at the terminal."""
    typer.echo(escape_controls(text, keep="\n\t"), err=True)


@contextmanager
def serving(service: JobService | JobServices) -> Iterator[None]:
    """Serves health and metrics while the block lasts, and says where."""
    with service:
        if service.address:
            say("Serves health and metrics at http://{}:{}.".format(*service.address))
        yield


def show_json(data: object) -> None:
    """Data as one line of JSON."""
    text = json.dumps(data, default=str, ensure_ascii=False)
    typer.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show_table(rows: Iterable[Sequence[object]]) -> None:
    """Data as columns, each as wide as its widest cell; on a terminal the widest column is wrapped to fit."""
    cells = [[escape_controls(in_words(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if widths and sys.stdout.isatty():
        widest = widths.index(max(widths))
        others = sum(widths) - widths[widest] + 2 * (len(widths) - 1)
        widths[widest] = min(widths[widest], max(_NARROWEST, shutil.get_terminal_size().columns - others))
    for row in cells:
        wrapped = [
            [cell[at : at + width] for at in range(0, len(cell), max(1, width))] or [""]
            for cell, width in zip(row, widths, strict=True)
        ]
        for line in zip_longest(*wrapped, fillvalue=""):
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


_NARROWEST = 20
"""A column is not wrapped to less, however narrow the terminal is."""


def in_words(value: object) -> str:
    """A cell as people read it.

    >>> in_words([None, "host-1"]), in_words(None), in_words({"orders": 3}), in_words([]), in_words(True), in_words(7)
    ('none, host-1', 'none', 'orders 3', 'none', 'true', '7')
    """
    if value in (None, [], (), {}):
        return "none"
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return ", ".join(map(in_words, value))
        case Mapping():
            return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
        case _:
            return str(value)


def show_fields(fields: Mapping[str, object], as_json: bool) -> None:
    """One object: as JSON, or a line per field."""
    if as_json:
        show_json(fields)
    else:
        show_table(fields.items())


def show_records(records: Sequence[Mapping[str, object]], as_json: bool = False, otherwise: str = "") -> None:
    """Objects with the same fields: as JSON, or a line each below their names; `otherwise` where there are none."""
    if as_json:
        show_json(records)
    elif records:
        show_table([list(records[0]), *(list(each.values()) for each in records)])
    elif otherwise:
        say(otherwise)


# Options that commands share, and what they turn into.

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings file; ./inorder.toml where it exists. INORDER_SECTION__FIELD variables override it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is stored with the action.")]
OfTopic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only records of this topic.")]
OfKey = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records of this key.")]
OfCode = Annotated[str | None, typer.Option("--code", metavar="CODE", help="Only records refused with this code.")]
Everything = Annotated[bool, typer.Option("--all", help="Every record; required without a filter.")]


def open_app(config: Path | None, **overrides: dict[str, Any]) -> App:
    """The services of a command, by its settings; a context manager."""
    # Imported here, so that `inorder --help` stays quick.
    from inorder.app import App

    return App(load(config, **overrides))


def load(config: Path | None, **overrides: dict[str, Any]) -> Settings:
    """The settings of a command; configures the logs by them."""
    from inorder.observe import configure_logs
    from inorder.settings import Settings

    settings = Settings.load(config, **overrides)
    configure_logs(settings.log.level, settings.log.format)
    return settings
