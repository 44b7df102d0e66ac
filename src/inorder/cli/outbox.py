"""inorder outbox: rows that were published and kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_json

app = typer.Typer(help="Publish kept rows again.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def replay(
    config: ConfigFile = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only rows of this key.")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only rows of this topic.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only rows that were published then or later; UTC.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every row; needed where nothing else is said.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put copies of published rows into the outbox, in their old order, behind all that waits.

    Rows are kept where `relay.retention_days` is set. All of them or none are put back.
    """
    from inorder.wiring import replay_outbox

    if key is None and topic is None and since is None and not everything:
        raise typer.BadParameter("say which with --key, --topic or --since, or say --all")
    at = None if since is None else since.replace(tzinfo=UTC)
    encoded = None if key is None else key.encode()
    count = replay_outbox(load(config), key=encoded, topic=topic, since=at, dry_run=dry_run)
    if as_json:
        show_json({"rows": count, "dry_run": dry_run})
    else:
        say(f"{count} rows to replay; nothing was done." if dry_run else f"{count} rows wait to be published again.")
