"""inorder journal quarantine: journals that wait behind a record which cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import readable, say, show_fields, show_json, show_table
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.journal.replication.quarantine import Quarantined

app = typer.Typer(
    help="Look at records that could not be replicated, apply them or give them up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the journal.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The journal.")]
OfTopic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only journals of this topic.")]
OfJournal = Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this journal.")]


@app.command("list")
def list_records(
    config: ConfigFile = None, topic: OfTopic = None, id: OfJournal = None, as_json: AsJson = False
) -> None:
    """Print the records in quarantine, and why they are there."""
    from inorder.wiring import list_quarantine

    found = list_quarantine(load(config), topic, id)
    if as_json:
        show_json([_fields(each) for each in found])
    elif found:
        show_table([list(_fields(found[0])), *(list(_fields(each).values()) for each in found)])
    say(f"Quarantine: {len(found)} records of {len({each.key for each in found})} journals.")


@app.command()
def release(topic: Topic, id: Id, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Apply the records of a journal in their order, once they can be read: all of them or none."""
    from inorder.model.journal import Key
    from inorder.wiring import release_journal

    show_fields({"released": release_journal(load(config), Key(id, topic))}, as_json)


@app.command()
def discard(
    topic: Topic,
    id: Id,
    config: ConfigFile = None,
    offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only the record at this offset.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All records of the journal in quarantine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up one record of a journal, or all that wait; the journal then goes on without them."""
    from inorder.model.journal import Key
    from inorder.wiring import discard_quarantined

    if (offset is None) != everything:
        raise typer.BadParameter("name a record with --offset N, or say --all")
    count = discard_quarantined(load(config), Key(id, topic), offset)
    if not count:
        raise ConfigurationError(
            f"There is no such record of {topic}:{id} in quarantine.",
            hint="`inorder journal quarantine list` has them.",
        )
    show_fields({"discarded": count}, as_json)


def _fields(each: Quarantined) -> dict[str, object]:
    return {
        "topic": each.key.topic,
        "id": each.key.id,
        "partition": each.partition,
        "offset": each.offset,
        "value": (readable(each.record.value) or "")[:60],
        "reason": each.reason,
    }
