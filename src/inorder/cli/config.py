"""inorder config: what is set, and whether it can be."""

from __future__ import annotations

from dataclasses import asdict

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_json, show_table

app = typer.Typer(help="Show and check the settings.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def show(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print every setting, secrets masked, with the source it came from."""
    rows = load(config).describe()
    if as_json:
        show_json([asdict(row) for row in rows])
    else:
        show_table((row.key, row.value, _source(row.source, row.place)) for row in rows)


@app.command()
def check(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check the settings without touching a server."""
    from inorder.kafka.admin import check_properties

    settings = load(config)
    check_properties(settings.kafka.properties)
    if as_json:
        show_json({"ok": True, "settings": len(settings.describe())})
    else:
        say("The settings are fine. `inorder doctor` checks the servers.")


def _source(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source
