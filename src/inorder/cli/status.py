"""inorder status: how everything stands."""

from __future__ import annotations

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import show_json, show_table


def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how relay, topics, pipeline and journals stand, in one look.

    A part that cannot be asked says why; then the exit code is 4 where something is unreachable, else 3.
    """
    from inorder.wiring import whole_status

    told = whole_status(load(config))
    if as_json:
        show_json(told)
    else:
        show_table((part, name, value) for part, fields in told.items() for name, value in fields.items())
    raise typer.Exit(max((fields.get("exit_code", 0) for fields in told.values()), default=0))
