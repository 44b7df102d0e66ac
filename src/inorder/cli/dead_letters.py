"""inorder dead-letters: records that a pipeline rejected; list, retry and discard them."""

from __future__ import annotations

import base64
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

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
    from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
    from inorder.pipeline.stores.ports import StoredLetter

app = typer.Typer(help="List, retry and discard rejected records.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[
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


@app.command("list")
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
        _list(app.dead_letters, _filter(None, pipeline, topic, partition, offset, code, key), limit, as_json)


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="TOPIC:PARTITION:OFFSET, as `list` prints it.")],
    config: ConfigFile = None,
    pipeline: Pipeline = None,
    as_json: AsJson = False,
) -> None:
    """Print one dead letter with its key and value."""
    with open_app(config) as app:
        found = app.dead_letters.read(2, **_filter(letter_id, pipeline))
    if not found:
        raise ConfigurationError(
            f"There is no dead letter {letter_id}.", hint="`inorder dead-letters list` prints them."
        )
    if len(found) > 1:
        names = " and ".join(repr(letter.pipeline) for letter in found)
        raise ConfigurationError(f"{letter_id} is a dead letter of {names}.", hint="Choose one with --pipeline NAME.")
    show_fields(_whole(found[0], as_json), as_json)


@app.command()
def retry(
    letter_id: Id = None,
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
    """Apply records late; newer data is never overwritten. What cannot be applied stays."""
    wanted = _wanted(letter_id, pipeline, topic, partition, offset, code, key, everything)
    with open_app(config) as app:
        if dry_run:
            _list(app.dead_letters, wanted, 100, as_json)
            say("These would be retried; nothing was done.")
            return
        retried = list(app.dead_letters.retry(reason, through=through.value, settles_stale=settle_stale, **wanted))
    rows = [{"id": one.id, "pipeline": one.pipeline, "fate": one.fate.value, "detail": one.detail} for one in retried]
    if as_json:
        show_json(rows)
    elif rows:
        show_table(list(row.values()) for row in rows)
    say(f"retry: {_counted(Counter(one.fate.value for one in retried))}.")


@app.command()
def discard(
    letter_id: Id = None,
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
    if not reason:
        raise typer.BadParameter("say why with --reason TEXT; the letters are deleted")
    wanted = _wanted(letter_id, pipeline, topic, partition, offset, code, key, everything)
    with open_app(config) as app:
        if dry_run:
            _list(app.dead_letters, wanted, 100, as_json)
            say("These would be discarded; nothing was done.")
            return
        count = app.dead_letters.discard(reason, **wanted)
    if as_json:
        show_json({"discarded": count})
    say(f"discard: {count} letters.")


def _list(admin: DeadLetterAdmin, wanted: dict[str, Any], limit: int, as_json: bool) -> None:
    letters, counts = admin.read(limit, **wanted), admin.count(**wanted)
    if as_json:
        show_json([_fields(letter) for letter in letters])
    elif letters:
        show_table(list(_fields(letter).values()) for letter in letters)
    more = (
        f" The first {len(letters)} are printed; --limit N prints more." if len(letters) < sum(counts.values()) else ""
    )
    say(f"Dead letters: {_counted(counts)}.{more}")


def _counted(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counts.items())})" if total else "none"


def _wanted(letter_id: str | None, *given: Any) -> dict[str, Any]:
    *filters, everything = given
    wanted = _filter(letter_id, *filters)
    if not wanted and not everything:
        raise typer.BadParameter("name a letter by its ID, filter with --pipeline, --topic, --code …, or give --all")
    return wanted


def _filter(
    letter_id: str | None,
    pipeline: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    code: str | None = None,
    key: str | None = None,
) -> dict[str, Any]:
    named: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    if letter_id is not None:
        if any(value is not None for value in named.values()):
            raise typer.BadParameter("an ID already names topic, partition and offset")
        named = _coordinates(letter_id)
    given = {"pipeline": pipeline, **named, "code": code, "key": None if key is None else key.encode()}
    return {name: value for name, value in given.items() if value is not None}


def _coordinates(letter_id: str) -> dict[str, Any]:
    topic, *numbers = letter_id.rsplit(":", 2)
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise typer.BadParameter(f"{letter_id!r} is not an ID; use TOPIC:PARTITION:OFFSET, as `list` prints it")
    return {"topic": topic, "partition": int(numbers[0]), "offset": int(numbers[1])}


def _fields(letter: StoredLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "pipeline": letter.pipeline,
        "key": readable(letter.key),
        "code": letter.code,
        "recorded_at": letter.recorded_at.isoformat(),
        "detail": letter.detail,
    }


def _whole(letter: StoredLetter, as_json: bool) -> dict[str, object]:
    at = letter.record_timestamp
    fields = {
        **_fields(letter),
        "generation": letter.generation,
        "record_timestamp": None if at is None else at.isoformat(),
        "value": readable(letter.value),
    }
    if as_json:
        fields |= {"key_base64": _base64(letter.key), "value_base64": _base64(letter.value)}
    return fields


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
