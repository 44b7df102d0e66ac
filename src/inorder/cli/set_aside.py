"""inorder exceeded and inorder dead-letters: records set aside, by the relay or by a pipeline; list, retry, discard.
inorder actions: the log of all that was done to them, and what became of each.

Both refuse to act on everything unless `--all` says so, and to discard without a reason.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
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
    say,
    show_fields,
    show_json,
    show_records,
)
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
    from inorder.relay.stores.exceeded import ExceededRow

exceeded_app = typer.Typer(help="List, retry and discard refused records.", no_args_is_help=True, rich_markup_mode=None)
dead_letters_app = typer.Typer(
    help="List, retry and discard rejected records.", no_args_is_help=True, rich_markup_mode=None
)

actions_app = typer.Typer(
    help="Print what was done, and what became of it.", no_args_is_help=True, rich_markup_mode=None
)


def _given(key: str | None, **filters: Any) -> dict[str, Any]:
    """The filters that were given."""
    named = {**filters, "key": None if key is None else key.encode()}
    return {name: value for name, value in named.items() if value is not None}


def _require_choice(wanted: dict[str, Any], everything: bool, ways: str) -> None:
    if not wanted and not everything:
        raise typer.BadParameter(f"{ways}, or give --all")


def _require_reason(reason: str, what: str) -> None:
    if not reason:
        raise typer.BadParameter(f"say why with --reason TEXT; the {what} are deleted")


# inorder exceeded: records that used up their attempts at the relay.

RowId = Annotated[int | None, typer.Argument(metavar="ID", help="One record, by its outbox id.")]


@exceeded_app.command("list")
def list_exceeded(
    config: ConfigFile = None, topic: OfTopic = None, key: OfKey = None, code: OfCode = None, as_json: AsJson = False
) -> None:
    """Print refused records, oldest first."""
    with open_app(config) as app:
        _show_exceeded(app.relay_admin.exceeded_rows(**_given(key, topic=topic, code=code)), as_json)


@exceeded_app.command("show")
def show_exceeded(
    row_id: Annotated[int, typer.Argument(metavar="ID")], config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Print one refused record with its headers and value."""
    from inorder.operate.fields import whole_exceeded

    with open_app(config) as app:
        rows = app.relay_admin.exceeded_rows(id=row_id)
    if not rows:
        raise ConfigurationError(f"There is no exceeded record {row_id}.", hint="`inorder exceeded list` shows them.")
    show_fields(whole_exceeded(rows[0]), as_json)


@exceeded_app.command("retry")
def retry_exceeded(
    row_id: RowId = None,
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
    wanted = _given(key, id=row_id, topic=topic, code=code)
    _settle_exceeded("retry", config, wanted, everything, reason, dry_run, as_json)


@exceeded_app.command("discard")
def discard_exceeded(
    row_id: RowId = None,
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
    _require_reason(reason, "records")
    wanted = _given(key, id=row_id, topic=topic, code=code)
    _settle_exceeded("discard", config, wanted, everything, reason, dry_run, as_json)


def _settle_exceeded(
    action: Literal["retry", "discard"],
    config: Path | None,
    wanted: dict[str, Any],
    everything: bool,
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    _require_choice(wanted, everything, "name a record by its ID, filter with --topic, --key or --code")
    with open_app(config) as app:
        if dry_run:
            rows = app.relay_admin.exceeded_rows(**wanted)
        else:
            rows = app.set_aside.settle_exceeded(action, reason, everything=everything, **wanted).result
    _show_exceeded(rows, as_json)
    say(f"{len(rows)} to {action}; nothing was done." if dry_run else f"{action}: {len(rows)} records.")


def _show_exceeded(rows: list[ExceededRow], as_json: bool) -> None:
    from inorder.operate.fields import exceeded_fields

    show_records([exceeded_fields(row) for row in rows], as_json)
    if not rows and not as_json:
        say("No record has used up its attempts.")


# inorder dead-letters: records that a pipeline rejected.

LetterId = Annotated[
    str | None, typer.Argument(metavar="ID", help="One letter, as TOPIC:PARTITION:OFFSET, which `list` prints.")
]
Pipeline = Annotated[str | None, typer.Option(metavar="NAME", help="Only records of this pipeline.")]
Partition = Annotated[int | None, typer.Option(metavar="N", min=0, help="Only records of this partition.")]
Offset = Annotated[int | None, typer.Option(metavar="N", min=0, help="Only records at this offset.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, help="Print at most so many.")]


class Through(StrEnum):
    """Where a retried record goes."""

    table = "table"
    topic = "topic"


@dead_letters_app.command("list")
def list_letters(
    config: ConfigFile = None,
    pipeline: Pipeline = None,
    topic: OfTopic = None,
    partition: Partition = None,
    offset: Offset = None,
    code: OfCode = None,
    key: OfKey = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Print dead letters by pipeline, topic, partition and offset."""
    with open_app(config) as app:
        _show_letters(
            app.dead_letters,
            _given(key, pipeline=pipeline, topic=topic, partition=partition, offset=offset, code=code),
            limit,
            as_json,
        )


@dead_letters_app.command("show")
def show_letter(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="TOPIC:PARTITION:OFFSET, as `list` prints it.")],
    config: ConfigFile = None,
    pipeline: Pipeline = None,
    as_json: AsJson = False,
) -> None:
    """Print one dead letter with its key and value."""
    from inorder.operate.fields import whole_letter

    with open_app(config) as app:
        found = app.dead_letters.read(2, **_given(None, **{"pipeline": pipeline, **_coordinates(letter_id)}))
    if not found:
        raise ConfigurationError(
            f"There is no dead letter {letter_id}.", hint="`inorder dead-letters list` prints them."
        )
    if len(found) > 1:
        names = " and ".join(repr(letter.pipeline) for letter in found)
        raise ConfigurationError(f"{letter_id} is a dead letter of {names}.", hint="Choose one with --pipeline NAME.")
    show_fields(whole_letter(found[0], with_bytes=as_json), as_json)


@dead_letters_app.command("retry")
def retry_letters(
    letter_id: LetterId = None,
    config: ConfigFile = None,
    pipeline: Pipeline = None,
    topic: OfTopic = None,
    partition: Partition = None,
    offset: Offset = None,
    code: OfCode = None,
    key: OfKey = None,
    everything: Everything = False,
    through: Annotated[
        Through,
        typer.Option(help="table: apply it with the version it had. topic: send it again, if nothing newer is there."),
    ] = Through.table,
    settle_stale: Annotated[
        bool, typer.Option("--settle-stale", help="Do not keep letters that newer data has overtaken.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Apply records late; newer data is never overwritten. What cannot be applied stays.

    Exit 1 where all of them were rejected again.
    """
    wanted = _wanted_letters(letter_id, everything, key, pipeline, topic, partition, offset, code)
    with open_app(config) as app:
        if dry_run:
            _show_letters(app.dead_letters, wanted, 100, as_json)
            say("These would be retried; nothing was done.")
            return
        retried = app.set_aside.retry_letters(
            reason, everything=everything, through=through.value, settles_stale=settle_stale, **wanted
        ).result
    rows = [{"id": one.id, "pipeline": one.pipeline, "fate": one.fate.value, "detail": one.detail} for one in retried]
    show_records(rows, as_json)
    counts = Counter(one.fate.value for one in retried)
    say(f"retry: {_counted(counts)}.")
    if counts and set(counts) == {"rejected"}:
        raise typer.Exit(1)


@dead_letters_app.command("discard")
def discard_letters(
    letter_id: LetterId = None,
    config: ConfigFile = None,
    pipeline: Pipeline = None,
    topic: OfTopic = None,
    partition: Partition = None,
    offset: Offset = None,
    code: OfCode = None,
    key: OfKey = None,
    everything: Everything = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Discard letters. A reason is required."""
    _require_reason(reason, "letters")
    wanted = _wanted_letters(letter_id, everything, key, pipeline, topic, partition, offset, code)
    with open_app(config) as app:
        if dry_run:
            _show_letters(app.dead_letters, wanted, 100, as_json)
            say("These would be discarded; nothing was done.")
            return
        count = app.set_aside.discard_letters(reason, everything=everything, **wanted).result
    if as_json:
        show_json({"discarded": count})
    say(f"discard: {count} letters.")


def _show_letters(admin: DeadLetterAdmin, wanted: dict[str, Any], limit: int, as_json: bool) -> None:
    from inorder.operate.fields import letter_fields

    letters, counts = admin.read(limit, **wanted), admin.count(**wanted)
    show_records([letter_fields(letter) for letter in letters], as_json)
    more = (
        f" The first {len(letters)} are printed; --limit N prints more." if len(letters) < sum(counts.values()) else ""
    )
    say(f"Dead letters: {_counted(counts)}.{more}")


def _counted(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counts.items())})" if total else "none"


def _wanted_letters(
    letter_id: str | None,
    everything: bool,
    key: str | None,
    pipeline: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    code: str | None,
) -> dict[str, Any]:
    place: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    if letter_id is not None:
        if any(value is not None for value in place.values()):
            raise typer.BadParameter("an ID already names topic, partition and offset")
        place = _coordinates(letter_id)
    wanted = _given(key, code=code, **{"pipeline": pipeline, **place})
    _require_choice(wanted, everything, "name a letter by its ID, filter with --pipeline, --topic, --code …")
    return wanted


def _coordinates(letter_id: str) -> dict[str, Any]:
    from inorder.operate.fields import letter_coordinates

    try:
        return letter_coordinates(letter_id)
    except ConfigurationError:
        raise typer.BadParameter(
            f"{letter_id!r} is not an ID; use TOPIC:PARTITION:OFFSET, as `list` prints it"
        ) from None


# inorder actions: the log of actions.


@actions_app.command("list")
def list_actions(
    config: ConfigFile = None,
    most: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Print so many, the newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print the newest entries of the log of actions: who did what to which records, why, and its state."""
    from inorder.operate.fields import action_fields

    with open_app(config) as app:
        show_records([action_fields(each) for each in app.action_log.page(most=most)], as_json)


@actions_app.command("show")
def show_action(
    id: Annotated[str, typer.Argument(metavar="ID", help="The entry, by the id that `list` prints.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print one entry, and where each of its records is now: arrived, waiting, refused again or discarded."""
    from inorder.operate.fields import whole_action

    with open_app(config) as app:
        found = app.action_log.read(id)
        if found is None:
            raise ConfigurationError(f"There is no action {id}.", hint="`inorder actions list` shows them.")
        fields = whole_action(found, app.set_aside.follow_up(found))
    if as_json:
        show_json(fields)
        return
    result = fields.pop("result")
    show_fields({**fields, "result": result["counts"], "error": result["error"]}, False)
    show_records(result["fates"], False)
