"""inorder journal: journals by hand, with JSON lines in and out."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    open_app,
    say,
    serving,
    show_fields,
    show_json,
    show_records,
    show_table,
)
from inorder.cli.stopping import in_background, stop_on_signals
from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.journal import (
    Event,
    Payload,
    PayloadType,
    SeqNr,
    Snapshot,
    check_seq_nr,
    json_payload,
)

if TYPE_CHECKING:
    from inorder.journal.client import Journal
    from inorder.journal.projection import Projection
    from inorder.journal.snapshots import Recovery
    from inorder.model.journal import SnapshotCriteria

# inorder journal snapshot: states of journals, stored beside their events; JSON in and out.

snapshot_app = typer.Typer(
    help="Save, load, list and delete snapshots of journals.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the journal.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The journal.")]
SnapshotFrom = Annotated[int | None, typer.Option("--from", metavar="N", help="Only those at this number or above.")]
SnapshotTo = Annotated[int | None, typer.Option("--to", metavar="N", help="Only those at this number or below.")]
After = Annotated[
    datetime | None, typer.Option("--after", metavar="TIME", help="Only those saved at this time (UTC) or later.")
]
Before = Annotated[
    datetime | None, typer.Option("--before", metavar="TIME", help="Only those saved at this time (UTC) or earlier.")
]


@snapshot_app.command()
def save(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Save a snapshot from stdin: {"seq_nr": 5, "payload": ..., "metadata": ...}."""
    seq_nr, payload, metadata = snapshot_of_line(sys.stdin.read())
    with _open_journal(config, topic, id) as journal:
        saved = journal.save_snapshot(seq_nr, payload, metadata=metadata)
    if saved is None:
        say(f"The journal {topic}:{id} has newer snapshots, as many as it keeps; nothing was written.")
    show_fields({"seq_nr": seq_nr, "saved": saved is not None}, as_json)


@snapshot_app.command("load")
def load_snapshot(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    from_seq_nr: SnapshotFrom = None,
    to: SnapshotTo = None,
    after: After = None,
    before: Before = None,
    as_json: AsJson = False,
) -> None:
    """Print the latest snapshot that fits, as a line of JSON; nothing where there is none."""
    del as_json  # a line of JSON is what there is
    criteria = _criteria(from_seq_nr, to, after, before)
    with _open_journal(config, topic, id) as journal:
        found = journal.snapshot(criteria)
    if found is not None:
        show_json(line_of_snapshot(found))


@snapshot_app.command("list")
def list_snapshots(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the snapshots of a journal, the latest first."""
    with _open_journal(config, topic, id) as journal:
        found = journal.snapshots()
    if as_json:
        show_json([line_of_snapshot(each) for each in found])
    elif found:
        rows = [(each.seq_nr, each.timestamp.isoformat(), each.origin or "") for each in found]
        show_table([("seq_nr", "timestamp", "origin"), *rows])
    else:
        say(f"The journal {topic}:{id} has no snapshot.")


@snapshot_app.command("delete")
def delete_snapshots(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    seq_nr: Annotated[int | None, typer.Option(metavar="N", help="Only the one at this number.")] = None,
    from_seq_nr: SnapshotFrom = None,
    to: SnapshotTo = None,
    after: After = None,
    before: Before = None,
    everything: Annotated[bool, typer.Option("--all", help="All snapshots of the journal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the snapshots that fit; events stay as they are."""
    bounds = (from_seq_nr, to, after, before)
    if sum([seq_nr is not None, any(bound is not None for bound in bounds), everything]) != 1:
        raise typer.BadParameter(
            "name one with --seq-nr N, some with --from, --to, --after and --before, or give --all"
        )
    criteria = _criteria(*bounds) if seq_nr is None else _criteria(seq_nr, seq_nr, None, None)
    with _open_journal(config, topic, id) as journal:
        count = journal.delete_snapshots(criteria)
    show_fields({"deleted": count}, as_json)


@contextmanager
def _open_journal(config: Any, topic: str, id: str) -> Iterator[Journal]:
    from inorder.model.journal import Key

    with open_app(config) as app:
        yield app.journals.journal(Key(id, topic))


def _criteria(
    from_seq_nr: int | None, to: int | None, after: datetime | None, before: datetime | None
) -> SnapshotCriteria:
    from inorder.model.journal import MAX_SEQ_NR, MIN_SEQ_NR, SnapshotCriteria

    return SnapshotCriteria(
        MIN_SEQ_NR if from_seq_nr is None else from_seq_nr,
        MAX_SEQ_NR if to is None else to,
        None if after is None else after.replace(tzinfo=UTC),
        None if before is None else before.replace(tzinfo=UTC),
    )


# inorder journal quarantine: journals that wait behind a record which cannot be read.

quarantine_app = typer.Typer(
    help="List, release and discard records that could not be replicated.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OfTopic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only journals of this topic.")]
OfJournal = Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this journal.")]


@quarantine_app.command("list")
def list_records(
    config: ConfigFile = None, topic: OfTopic = None, id: OfJournal = None, as_json: AsJson = False
) -> None:
    """Print the records in quarantine, and why they are there."""
    from inorder.operate.fields import quarantine_fields

    with open_app(config) as app:
        found = app.journal_admin.quarantined(topic, id)
    rows = [quarantine_fields(each) for each in found]
    show_records(rows, as_json)
    say(f"Quarantine: {len(found)} records of {len({each.key for each in found})} journals.")


@quarantine_app.command()
def release(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Apply the records of a journal in their order, once they can be read: all of them or none."""
    from inorder.model.journal import Key

    with open_app(config) as app:
        show_fields({"released": app.set_aside.release_journal(Key(id, topic)).result}, as_json)


@quarantine_app.command()
def discard(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the record at this offset.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All records of the journal in quarantine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Discard one record of a journal, or all in quarantine; the journal continues without them."""
    from inorder.model.journal import Key

    if (offset is None) != everything:
        raise typer.BadParameter("name a record with --offset N, or give --all")
    with open_app(config) as app:
        count = app.set_aside.discard_journal(Key(id, topic), offset).result
    if not count:
        raise ConfigurationError(
            f"There is no such record of {topic}:{id} in quarantine.",
            hint="`inorder journal quarantine list` prints them.",
        )
    show_fields({"discarded": count}, as_json)


app = typer.Typer(help="Append to journals and read them.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(snapshot_app, name="snapshot")

From = Annotated[int, typer.Option("--from", metavar="N", help="The first sequence number.")]
To = Annotated[int | None, typer.Option("--to", metavar="N", help="The last sequence number; all without it.")]
FromSnapshot = Annotated[
    bool,
    typer.Option(
        "--from-snapshot", help='Print the latest snapshot first, as {"snapshot": ...}, then the events behind it.'
    ),
]
Expected = Annotated[
    int | None, typer.Option("--expected", metavar="N", help="Append only if the journal ends at N; 0 is an empty one.")
]
AllowGaps = Annotated[bool, typer.Option("--allow-gaps", help="Allow numbers that are not contiguous.")]
ExpireAfter = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Let the journal go so long after this append, as `30 days`.")
]


@app.command()
def append(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    expected: Expected = None,
    allow_gaps: AllowGaps = False,
    expire_after: ExpireAfter = None,
    as_json: AsJson = False,
) -> None:
    """Append events from stdin, all or none: a line each, as {"seq_nr": 1, "payload": ..., "tags": [...]}."""
    from inorder.journal import action

    events = list(_events(sys.stdin))
    if not events:
        raise ConfigurationError("There is no event on stdin.", hint='Give lines such as {"seq_nr": 1, "payload": {}}.')
    after = None if expire_after is None else _duration(expire_after, action.parse_duration)
    with _open_journal(config, topic, id) as journal:
        place = journal.append(events, expected_seq_nr=expected, allow_gaps=allow_gaps, expire_after=after)
    show_fields({"partition": place.partition, "offset": place.offset}, as_json)


@app.command()
def read(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    from_seq_nr: From = 1,
    to: To = None,
    from_snapshot: FromSnapshot = False,
    as_json: AsJson = False,
) -> None:
    """Print events, a line of JSON each, as they are read."""
    from inorder.model.journal import MAX_SEQ_NR
    from inorder.operate.journals import event_fields

    del as_json  # lines of JSON are what there is
    if from_snapshot and (from_seq_nr, to) != (1, None):
        raise typer.BadParameter("--from-snapshot goes from the snapshot to the end; leave --from and --to out")
    with _open_journal(config, topic, id) as journal:
        if from_snapshot:
            _show_recovery(journal.recover())
            return
        for record in journal.read(from_seq_nr, MAX_SEQ_NR if to is None else to):
            show_json(event_fields(record))


@app.command()
def pointer(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the last sequence number of a journal; nothing where there is none."""
    with _open_journal(config, topic, id) as journal:
        found = journal.pointer()
    if as_json:
        show_json({"seq_nr": found})
    elif found is not None:
        typer.echo(found)


@app.command()
def delete(
    topic: Topic,
    id: Id,
    to: Annotated[int, typer.Option("--to", metavar="N", help="The last sequence number that goes.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete the events up to a number; the journal keeps its last sequence number."""
    with _open_journal(config, topic, id) as journal:
        place = journal.delete(to)
    if place is None:
        say(f"There is no journal {topic}:{id}; nothing was written.")
        return
    show_fields({"partition": place.partition, "offset": place.offset}, as_json)


@app.command()
def purge(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Remove a journal; the next append begins a new one."""
    with _open_journal(config, topic, id) as journal:
        place = journal.purge()
    show_fields({"partition": place.partition, "offset": place.offset}, as_json)


@app.command()
def ids(topic: Topic, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the ids of the journals of a topic, as far as they are replicated."""
    with open_app(config) as app:
        for id in app.journals.ids(topic):
            show_json({"id": id}) if as_json else typer.echo(id)


_DAY = "%Y-%m-%d"


@app.command("list")
def list_journals(
    topic: Topic,
    origin: Annotated[str | None, typer.Option(metavar="NAME", help="Only those that this writer began.")] = None,
    created: Annotated[
        datetime | None, typer.Option(metavar="DAY", formats=[_DAY], help="Only those begun on this day (UTC).")
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option(metavar="DAY", formats=[_DAY], help="Only those that may be purged after it.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the journals of a topic, as far as they are replicated, with their ends, times and expiry."""
    with open_app(config) as app:
        days = {"created": created and created.date(), "expires": expires and expires.date()}
        found = map(asdict, app.journals.find(topic, origin=origin, **days))
        if as_json:
            for each in found:
                show_json(each)
        else:
            from inorder.journal.stores.ports import ListedJournal

            header = [field.name for field in fields(ListedJournal)]
            show_table([header, *(list(each.values()) for each in found)])


@app.command()
def lag(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how far the store is behind each partition of each journal topic."""
    with open_app(config) as app:
        rows = app.journal_admin.lag()
    if as_json:
        show_json([row._asdict() for row in rows])
    elif not rows:
        say("There is no journal topic; see journal.topic_prefixes.")
    else:
        show_table([("topic", "partition", "end", "replicated", "behind"), *rows])


@app.command()
def reset(
    topic: Topic,
    config: ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Accept that a topic was re-created or truncated, has more partitions, or lost records by retention.

    Writers, readers and the job replicate refuse a topic that is not the one whose records are in the store. Stop the
    job, run this, and start it again. Journals stay as they are in the store and continue with what the topic holds;
    what was not replicated of the former topic is lost.
    """
    with open_app(config) as app:
        changed = app.journal_admin.reset(topic, dry_run=dry_run)
    if changed is not None:
        show_fields(changed.as_dict(), as_json)
    elif as_json:
        show_json(None)
    else:
        say("The store fits its topic; nothing was changed.")


Project = Annotated[
    str, typer.Argument(metavar="MODULE:NAME", help="Where the `inorder.Projection` is, as Python imports it.")
]


@app.command()
def project(
    name: Project,
    config: ConfigFile = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="The database of its tables; that of `database.url` without it.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the topics are read to their present ends.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Print how far it is, and do nothing.")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget how far it is, so that it begins again; empty its tables first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fold journals into tables of yours with a handler, each change exactly once; several instances share the work."""
    projection = _import_projection(name)
    if sum([once, status, reset]) > 1:
        raise typer.BadParameter("give one of --once, --status and --reset")
    app = open_app(config)
    if status or reset:
        with app:
            if reset:
                show_fields({"forgotten": app.reset_projection(projection, database)}, as_json)
                return
            rows = app.projection_status(projection, database)
        if as_json:
            show_json([row._asdict() for row in rows])
        elif rows:
            show_table([rows[0]._fields, *rows])
        else:
            say(f"The projection {projection.name} has not begun.")
        return
    service = app.job_service(f"projection {projection.name}", dict)
    with stop_on_signals(f"the projection {projection.name}") as stop, app, serving(service):
        totals = in_background(
            lambda: app.project(projection, once=once, stop=stop, database=database, service=service)
        )
    show_fields(dict(totals), as_json)


def _import_projection(name: str) -> Projection:
    from inorder.journal.projection import Projection

    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # as `python -m` does: projections lie beside the settings
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{name!r} cannot be imported: {error}.", hint="Name it as `package.module:projection`."
        ) from error
    if not isinstance(found, Projection):
        raise ConfigurationError(f"{name!r} is no `inorder.Projection`.", hint="Build one with a name and a handler.")
    return found


def _show_recovery(recovery: Recovery) -> None:
    from inorder.operate.journals import event_fields

    if recovery.snapshot is not None:
        show_json({"snapshot": line_of_snapshot(recovery.snapshot)})
    for record in recovery.events:
        show_json(event_fields(record))


def _events(lines: Iterator[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield event_of_line(line, number)


def _duration(text: str, parse: Any) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as `30 days` or `90 minutes`") from error


# Events and snapshots as lines of JSON: what `inorder journal append` reads and `inorder journal read` prints.
#
# Bytes are written as `{"base64": "..."}` beside `"payload_type": "binary"`; text needs `"payload_type": "text"`. All
# else is JSON. So what was printed can be appended again.

_KNOWN = frozenset({"seq_nr", "payload", "payload_type", "tags"})
_KNOWN_OF_SNAPSHOT = frozenset({"seq_nr", "payload", "payload_type", "metadata"})
_PRINTED = frozenset({"timestamp", "partition", "offset", "origin", "version", "metadata", "headers"})


def event_of_line(line: str, number: int) -> Event:
    """The event of a line; `ValidationError` names the line and what is wrong with it."""
    place = f"line {number}"
    fields = _journal_lines_fields(line, place, _KNOWN)
    seq_nr = check_seq_nr(fields.get("seq_nr"), f"{place}, seq_nr")
    return Event(seq_nr, _payload(fields, place), frozenset(_tags(fields, place)))


def snapshot_of_line(text: str) -> tuple[SeqNr, Payload, object]:
    """Number, payload and metadata of a snapshot; `ValidationError` says what is wrong with it."""
    fields = _journal_lines_fields(text, "stdin", _KNOWN_OF_SNAPSHOT)
    return check_seq_nr(fields.get("seq_nr")), _payload(fields, "stdin"), fields.get("metadata")


def line_of_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot with everything that is known of it."""
    from inorder.operate.journals import payload_fields

    return {
        "seq_nr": snapshot.seq_nr,
        **payload_fields(snapshot.payload),
        "metadata": snapshot.metadata,
        "timestamp": snapshot.timestamp.isoformat(),
        "origin": snapshot.origin,
        "version": snapshot.version,
    }


def _journal_lines_fields(text: str, place: str, known: frozenset[str]) -> dict[str, Any]:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValidationError(place, f"it is not JSON: {error}.", hint='Write {"seq_nr": 1, "payload": {}}.') from error
    if not isinstance(fields, dict):
        raise ValidationError(place, f"{text.strip()[:80]!r} is not an object.")
    if unknown := sorted(set(fields) - known - _PRINTED):
        raise ValidationError(place, f"{unknown[0]!r} is not known.", hint=f"Known are {', '.join(sorted(known))}.")
    return fields


def _payload(fields: dict[str, Any], place: str) -> Payload:
    if "payload" not in fields:
        return None
    value, kind = fields["payload"], fields.get("payload_type", PayloadType.JSON)
    match kind:
        case PayloadType.JSON:
            return json_payload(value)
        case PayloadType.TEXT if isinstance(value, str):
            return value
        case PayloadType.BINARY if isinstance(value, dict) and isinstance(value.get("base64"), str):
            return _bytes(value["base64"], place)
    expected = {PayloadType.TEXT: "a text", PayloadType.BINARY: 'an object {"base64": "..."}'}
    if kind not in expected:
        raise ValidationError(place, f"payload_type {kind!r} is not known.", hint="It is json, text or binary.")
    raise ValidationError(place, f"its payload is not {expected[kind]}, as payload_type {kind!r} wants.")


def _bytes(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValidationError(place, f"its payload is not base64: {error}.") from error


def _tags(fields: dict[str, Any], place: str) -> list[str]:
    tags = fields.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValidationError(place, f"tags {tags!r} is not a list of texts.")
    return tags
