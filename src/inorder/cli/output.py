"""Data goes to stdout, words about it to stderr, so a pipe carries data only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer


def say(text: str) -> None:
    """A message for the person at the terminal."""
    typer.echo(text, err=True)


def show_json(data: object) -> None:
    """Data as one line of JSON."""
    typer.echo(json.dumps(data, default=str, ensure_ascii=False))


def show_table(rows: Iterable[Sequence[object]]) -> None:
    """Data as columns, each as wide as its widest cell."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_fields(fields: dict[str, object], as_json: bool) -> None:
    """One object: as JSON, or a line per field."""
    if as_json:
        show_json(fields)
    else:
        show_table(fields.items())


def readable(value: bytes | None) -> str | None:
    """Bytes for people: text where they are text, escaped where they are not."""
    return None if value is None else value.decode(errors="backslashreplace")


# Options that commands share, and what they turn into.

if TYPE_CHECKING:
    from inorder.settings import Settings

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings; ./inorder.toml where it exists. INORDER_SECTION__FIELD variables go over it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with what was done.")]


def load(config: Path | None, **overrides: dict[str, Any]) -> Settings:
    """The settings of a command, with its logs set up as they say."""
    from inorder.observe import configure_logs
    from inorder.settings import Settings

    settings = Settings.load(config, **overrides)
    configure_logs(settings.log.level, settings.log.format)
    return settings
