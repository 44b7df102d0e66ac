"""inorder exceeded: records that used up their attempts, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    DryRun,
    Reason,
    load,
    readable,
    say,
    show_fields,
    show_json,
    show_table,
)
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.relay.stores.exceeded import ExceededRow

app = typer.Typer(help="Look at refused records and let them go.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[int | None, typer.Argument(metavar="ID", help="One record, by its outbox id.")]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="Only records of this topic.")]
Key = Annotated[str | None, typer.Option(metavar="KEY", help="Only records of this key.")]
Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only records refused with this code.")]
Everything = Annotated[bool, typer.Option("--all", help="Every record; needed where nothing else is said.")]


@app.command("list")
def list_rows(
    config: ConfigFile = None, topic: Topic = None, key: Key = None, code: Code = None, as_json: AsJson = False
) -> None:
    """Print refused records, oldest first."""
    from inorder.relay.status import exceeded_rows

    _show(exceeded_rows(load(config), **_filter(None, topic, key, code)), as_json)


@app.command()
def show(
    row_id: Annotated[int, typer.Argument(metavar="ID")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Print one refused record with its headers and value."""
    from inorder.relay.status import exceeded_rows

    rows = exceeded_rows(load(config), id=row_id)
    if not rows:
        raise ConfigurationError(f"There is no exceeded record {row_id}.", hint="`inorder exceeded list` shows them.")
    show_fields({**_fields(rows[0]), "headers": rows[0].headers, "value": readable(rows[0].value)}, as_json)


@app.command()
def retry(
    row_id: Id = None,
    config: ConfigFile = None,
    topic: Topic = None,
    key: Key = None,
    code: Code = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put records back in their old place; their keys go on in order."""
    _settle("retry", load(config), _wanted(row_id, topic, key, code, everything), reason, dry_run, as_json)


@app.command()
def discard(
    row_id: Id = None,
    config: ConfigFile = None,
    topic: Topic = None,
    key: Key = None,
    code: Code = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give records up; their keys go on without them. A reason is needed."""
    if not reason:
        raise typer.BadParameter("say why with --reason TEXT; the records are gone afterwards")
    _settle("discard", load(config), _wanted(row_id, topic, key, code, everything), reason, dry_run, as_json)


def _settle(
    action: Literal["retry", "discard"],
    settings: Any,
    wanted: dict[str, Any],
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    from inorder.relay.status import exceeded_rows, settle_exceeded

    rows = exceeded_rows(settings, **wanted) if dry_run else settle_exceeded(settings, action, reason, **wanted)
    _show(rows, as_json)
    say(f"{len(rows)} to {action}; nothing was done." if dry_run else f"{action}: {len(rows)} records.")


def _wanted(
    row_id: int | None, topic: str | None, key: str | None, code: str | None, everything: bool
) -> dict[str, Any]:
    wanted = _filter(row_id, topic, key, code)
    if not wanted and not everything:
        raise typer.BadParameter("name a record by its ID, filter with --topic, --key or --code, or say --all")
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
