"""inorder journal snapshot: what journals came to, kept beside their events; JSON in and out."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.journal_lines import line_of_snapshot, snapshot_of_line
from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields, show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inorder.journal.client import Journal
    from inorder.model.journal import SnapshotCriteria

app = typer.Typer(
    help="Save, load, list and delete snapshots of journals.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the journal.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The journal.")]
From = Annotated[int | None, typer.Option("--from", metavar="N", help="Only those at this number or above.")]
To = Annotated[int | None, typer.Option("--to", metavar="N", help="Only those at this number or below.")]
After = Annotated[
    datetime | None, typer.Option("--after", metavar="TIME", help="Only those saved at this time (UTC) or later.")
]
Before = Annotated[
    datetime | None, typer.Option("--before", metavar="TIME", help="Only those saved at this time (UTC) or earlier.")
]


@app.command()
def save(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Save a snapshot from stdin: {"seq_nr": 5, "payload": ..., "metadata": ...}."""
    seq_nr, payload, metadata = snapshot_of_line(sys.stdin.read())
    with _journal(config, topic, id) as journal:
        saved = journal.save_snapshot(seq_nr, payload, metadata=metadata)
    if saved is None:
        say(f"The journal {topic}:{id} has newer snapshots, as many as it keeps; nothing was written.")
    show_fields({"seq_nr": seq_nr, "saved": saved is not None}, as_json)


@app.command("load")
def load_snapshot(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    from_seq_nr: From = None,
    to: To = None,
    after: After = None,
    before: Before = None,
    as_json: AsJson = False,
) -> None:
    """Print the latest snapshot that fits, as a line of JSON; nothing where there is none."""
    del as_json  # a line of JSON is what there is
    criteria = _criteria(from_seq_nr, to, after, before)
    with _journal(config, topic, id) as journal:
        found = journal.snapshot(criteria)
    if found is not None:
        show_json(line_of_snapshot(found))


@app.command("list")
def list_snapshots(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the snapshots of a journal, the latest first."""
    with _journal(config, topic, id) as journal:
        found = journal.snapshots()
    if as_json:
        show_json([line_of_snapshot(each) for each in found])
    elif found:
        rows = [(each.seq_nr, each.timestamp.isoformat(), each.origin or "") for each in found]
        show_table([("seq_nr", "timestamp", "origin"), *rows])
    else:
        say(f"The journal {topic}:{id} has no snapshot.")


@app.command()
def delete(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    seq_nr: Annotated[int | None, typer.Option(metavar="N", help="Only the one at this number.")] = None,
    from_seq_nr: From = None,
    to: To = None,
    after: After = None,
    before: Before = None,
    everything: Annotated[bool, typer.Option("--all", help="All snapshots of the journal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the snapshots that fit; events stay as they are."""
    bounds = (from_seq_nr, to, after, before)
    if sum([seq_nr is not None, any(bound is not None for bound in bounds), everything]) != 1:
        raise typer.BadParameter("name one with --seq-nr N, some with --from, --to, --after and --before, or say --all")
    criteria = _criteria(*bounds) if seq_nr is None else _criteria(seq_nr, seq_nr, None, None)
    with _journal(config, topic, id) as journal:
        count = journal.delete_snapshots(criteria)
    show_fields({"deleted": count}, as_json)


@contextmanager
def _journal(config: Any, topic: str, id: str) -> Iterator[Journal]:
    from inorder.model.journal import Key
    from inorder.wiring import Journals

    with Journals(load(config)) as journals:
        yield journals.journal(Key(id, topic))


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
