"""inorder journal: journals by hand, with JSON lines in and out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli import journal_snapshots, quarantine
from inorder.cli.journal_lines import event_of_line, line_of_event, line_of_snapshot
from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields, show_json, show_table
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.journal.client import Journal
    from inorder.journal.snapshots.snapshotting import Recovery
    from inorder.model.journal import Event
    from inorder.wiring import Journals

app = typer.Typer(help="Append to journals and read them.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(journal_snapshots.app, name="snapshot")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the journal.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The journal.")]
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
ExpireAfter = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Let the journal go so long after this append, as `30 days`.")
]


@app.command()
def append(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    expected: Expected = None,
    expire_after: ExpireAfter = None,
    as_json: AsJson = False,
) -> None:
    """Append events from stdin, all or none: a line each, as {"seq_nr": 1, "payload": ..., "tags": [...]}."""
    from inorder.journal.codec import durations

    events = list(_events(sys.stdin))
    if not events:
        raise ConfigurationError("There is no event on stdin.", hint='Give lines such as {"seq_nr": 1, "payload": {}}.')
    after = None if expire_after is None else _duration(expire_after, durations.from_json)
    with _journals(config) as journals:
        place = _journal(journals, topic, id).append(events, expected_seq_nr=expected, expire_after=after)
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

    del as_json  # lines of JSON are what there is
    if from_snapshot and (from_seq_nr, to) != (1, None):
        raise typer.BadParameter("--from-snapshot goes from the snapshot to the end; leave --from and --to out")
    with _journals(config) as journals:
        journal = _journal(journals, topic, id)
        if from_snapshot:
            _show_recovery(journal.recover())
            return
        for record in journal.read(from_seq_nr, MAX_SEQ_NR if to is None else to):
            show_json(line_of_event(record))


@app.command()
def pointer(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the last sequence number of a journal; nothing where there is none."""
    with _journals(config) as journals:
        found = _journal(journals, topic, id).pointer()
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
    """Delete the events up to a number; the journal goes on from where it is."""
    with _journals(config) as journals:
        place = _journal(journals, topic, id).delete(to)
    if place is None:
        say(f"There is no journal {topic}:{id}; nothing was written.")
        return
    show_fields({"partition": place.partition, "offset": place.offset}, as_json)


@app.command()
def purge(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Remove a journal; the next append begins a new one."""
    with _journals(config) as journals:
        place = _journal(journals, topic, id).purge()
    show_fields({"partition": place.partition, "offset": place.offset}, as_json)


@app.command()
def ids(topic: Topic, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the ids of the journals of a topic, as far as they are replicated."""
    with _journals(config) as journals:
        for id in journals.ids(topic):
            show_json({"id": id}) if as_json else typer.echo(id)


@app.command()
def lag(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how far the store is behind each partition of each journal topic."""
    from inorder.wiring import journal_lag

    rows = journal_lag(load(config))
    if as_json:
        show_json([row._asdict() for row in rows])
    elif not rows:
        say("There is no journal topic; see journal.topic_prefixes.")
    else:
        show_table([("topic", "partition", "end", "replicated", "behind"), *rows])


def _journals(config: Any) -> Journals:
    from inorder.wiring import Journals

    return Journals(load(config))


def _journal(journals: Journals, topic: str, id: str) -> Journal:
    from inorder.model.journal import Key

    return journals.journal(Key(id, topic))


def _show_recovery(recovery: Recovery) -> None:
    if recovery.snapshot is not None:
        show_json({"snapshot": line_of_snapshot(recovery.snapshot)})
    for record in recovery.events:
        show_json(line_of_event(record))


def _events(lines: Iterator[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield event_of_line(line, number)


def _duration(text: str, parse: Any) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as `30 days` or `90 minutes`") from error
