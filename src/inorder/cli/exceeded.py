"""inorder exceeded: records that used up their attempts; list, retry and discard them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    DryRun,
    Everything,
    OfCode,
    OfKey,
    OfTopic,
    Reason,
    open_app,
    readable,
    say,
    show_fields,
    show_json,
    show_table,
)
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.relay.stores.exceeded import ExceededRow

app = typer.Typer(help="List, retry and discard refused records.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[int | None, typer.Argument(metavar="ID", help="One record, by its outbox id.")]


@app.command("list")
def list_rows(
    config: ConfigFile = None, topic: OfTopic = None, key: OfKey = None, code: OfCode = None, as_json: AsJson = False
) -> None:
    """Print refused records, oldest first."""
    with open_app(config) as app:
        _show(app.relay_admin.exceeded_rows(**_filter(None, topic, key, code)), as_json)


@app.command()
def show(
    row_id: Annotated[int, typer.Argument(metavar="ID")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Print one refused record with its headers and value."""
    with open_app(config) as app:
        rows = app.relay_admin.exceeded_rows(id=row_id)
    if not rows:
        raise ConfigurationError(f"There is no exceeded record {row_id}.", hint="`inorder exceeded list` shows them.")
    show_fields({**_fields(rows[0]), "headers": rows[0].headers, "value": readable(rows[0].value)}, as_json)


@app.command()
def retry(
    row_id: Id = None,
    config: ConfigFile = None,
    topic: OfTopic = None,
    key: OfKey = None,
    code: OfCode = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put records back in their old place; their keys continue in order."""
    _settle("retry", config, _wanted(row_id, topic, key, code, everything), reason, dry_run, as_json)


@app.command()
def discard(
    row_id: Id = None,
    config: ConfigFile = None,
    topic: OfTopic = None,
    key: OfKey = None,
    code: OfCode = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Discard records; their keys continue without them. A reason is required."""
    if not reason:
        raise typer.BadParameter("say why with --reason TEXT; the records are deleted")
    _settle("discard", config, _wanted(row_id, topic, key, code, everything), reason, dry_run, as_json)


def _settle(
    action: Literal["retry", "discard"],
    config: Path | None,
    wanted: dict[str, Any],
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    with open_app(config) as app:
        admin = app.relay_admin
        rows = admin.exceeded_rows(**wanted) if dry_run else admin.settle_exceeded(action, reason, **wanted)
    _show(rows, as_json)
    say(f"{len(rows)} to {action}; nothing was done." if dry_run else f"{action}: {len(rows)} records.")


def _wanted(
    row_id: int | None, topic: str | None, key: str | None, code: str | None, everything: bool
) -> dict[str, Any]:
    wanted = _filter(row_id, topic, key, code)
    if not wanted and not everything:
        raise typer.BadParameter("name a record by its ID, filter with --topic, --key or --code, or give --all")
    return wanted


def _filter(row_id: int | None, topic: str | None, key: str | None, code: str | None) -> dict[str, Any]:
    given = {"id": row_id, "topic": topic, "key": None if key is None else key.encode(), "code": code}
    return {name: value for name, value in given.items() if value is not None}


def _show(rows: list[ExceededRow], as_json: bool) -> None:
    if as_json:
        show_json([_fields(row) for row in rows])
    elif rows:
        show_table(list(_fields(row).values()) for row in rows)
    else:
        say("No record has used up its attempts.")


def _fields(row: ExceededRow) -> dict[str, object]:
    return {
        "id": row.id,
        "topic": row.topic,
        "key": readable(row.key),
        "attempts": row.attempts,
        "code": row.code,
        "parks": row.parks,
        "exceeded_at": row.exceeded_at.isoformat(),
        "reason": row.reason,
    }
