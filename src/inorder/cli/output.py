"""Data goes to stdout, messages about it to stderr, so a pipe carries data only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from inorder.app import App
    from inorder.engines.job_status import JobService
    from inorder.settings import Settings


def say(text: str) -> None:
    """A message for the person at the terminal."""
    typer.echo(text, err=True)


@contextmanager
def serving(service: JobService) -> Iterator[None]:
    """Serves health and metrics while the block lasts, and says where."""
    with service:
        if service.address:
            say("Serves health and metrics at http://{}:{}.".format(*service.address))
        yield


def show_json(data: object) -> None:
    """Data as one line of JSON."""
    typer.echo(json.dumps(data, default=str, ensure_ascii=False))


def show_table(rows: Iterable[Sequence[object]]) -> None:
    """Data as columns, each as wide as its widest cell."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """The text without control characters, which a key or a value may hold and a terminal would obey.

    >>> printable("a\x1b[31m\n")
    'a\\x1b[31m\n'
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


# All but tab and line feed, which our own texts have too.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def show_fields(fields: dict[str, object], as_json: bool) -> None:
    """One object: as JSON, or a line per field."""
    if as_json:
        show_json(fields)
    else:
        show_table(fields.items())


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
