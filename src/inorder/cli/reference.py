"""Writes the generated pages of docs/: `python -m inorder.cli.reference docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from inorder.cli.main import app
from inorder.model import errors
from inorder.model.errors import InorderError
from inorder.settings.reference import settings_page

_CLI_HEAD = """\
# Commands

This page is generated from the code by `make docs`.

Data goes to stdout, messages go to stderr. `--config FILE` may follow any command, `--json` every
command that prints data. SIGTERM and Ctrl-C stop a service gracefully: a relay or a job within 10 s, embedded
servers within 30 s; one that takes longer prints that and exits with 1. Ctrl-C ends other commands with 130.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage |
| 3 | wrong configuration |
| 4 | a dependency is unreachable: a server, a download, Java, disk |
| 5 | a guarantee was violated: loss, disorder or duplicates |

`make` itself exits with 2 whenever a target fails; the last line has the code of the command, as in
`make: *** [Makefile:30: demo] Error 4`.
`INORDER_TRACEBACK=1` shows the traceback of an error.
"""

_WIDTH = 100

_ERRORS_HEAD = """\
# Errors

This page is generated from the code by `make docs`.

Every error that inorder raises on purpose is an `InorderError` with a stable `code`, a `message` that says
what happened, and a `hint` that says what to do next. Programs match the class or the code; texts may change.

| code | class | kind of | exit code | meaning |
|---|---|---|---|---|
"""


def pages() -> dict[str, str]:
    """Every generated page, by file name."""
    return {"cli.md": cli_page(), "errors.md": errors_page(), "settings.md": settings_page()}


def errors_page() -> str:
    """docs/errors.md: the tree of errors, a row each."""
    # Some belong to two families; they have one row.
    return _ERRORS_HEAD + "\n".join(_error_row(kind) for kind in dict.fromkeys(_tree(InorderError))) + "\n"


def _tree(kind: type[InorderError]) -> Iterator[type[InorderError]]:
    # Only what the model shows: a private subclass elsewhere never leaves its module.
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


def _error_row(kind: type[InorderError]) -> str:
    parents = ", ".join(f"`{parent.__name__}`" for parent in kind.__bases__)
    return f"| `{kind.code}` | `{kind.__name__}` | {parents} | {kind.exit_code} | {kind.__doc__} |"


def cli_page() -> str:
    """docs/cli.md: every command with its options."""
    return "\n".join([_CLI_HEAD, *_commands(typer.main.get_command(app), "inorder")])


def _commands(command: Any, name: str) -> Iterator[str]:
    # Typer keeps its copy of Click private, so these objects have no public type.
    children = getattr(command, "commands", None)
    if children is None:
        yield from _command(command, name)
        return
    for child, inner in children.items():
        yield from _commands(inner, f"{name} {child}")


def _command(command: Any, name: str) -> Iterator[str]:
    # A width of its own, so that the page does not depend on the terminal it is written in.
    context = command.context_class(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH)
    yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"


def write(folder: Path) -> None:
    """Writes every page into a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
