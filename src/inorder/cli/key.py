"""inorder key: where a key is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_json, show_table

if TYPE_CHECKING:
    from inorder.following.hops import Followed, TableHop
    from inorder.following.verdict import Finding

app = typer.Typer(help="Find out where a key is.", no_args_is_help=True, rich_markup_mode=None)

UNREACHABLE = 4


@app.callback()
def key() -> None:
    """Find out where a key is."""


@app.command()
def follow(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A record key, as text; of journals the id.")],
    config: ConfigFile = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only this topic.")] = None,
    everywhere: Annotated[
        bool, typer.Option("--all-partitions", help="Look beyond the partition that the key belongs to.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Follow one key through outbox, topic, table and journal, and say where it is held up.

    It reads the key's partition from its beginning, and changes nothing. Exit 4 where a hop could not be looked at.
    """
    from inorder.following.verdict import findings, summary
    from inorder.wiring import follow_key

    followed = follow_key(load(config), key, topic=topic, everywhere=everywhere)
    found = findings(followed)
    if as_json:
        show_json({**_plain(followed), "findings": [asdict(each) for each in found], "has_arrived": not found})
    else:
        _show(followed, found)
    say(summary(followed, found))
    raise typer.Exit(UNREACHABLE if followed.unseen else 0)


def _plain(followed: Followed) -> dict[str, Any]:
    """As JSON has it, which knows no pairs as names."""
    return {**asdict(followed), "tables": [_plain_table(table) for table in followed.tables]}


def _plain_table(table: TableHop) -> dict[str, Any]:
    due = [{"topic": topic, "partition": number, "offset": at} for (topic, number), at in table.due.items()]
    return {**asdict(table), "due": due}


def _show(followed: Followed, found: list[Finding]) -> None:
    show_table([("hop", "where", "what"), *_lines(followed)])
    for each in found:
        say(f"{each.hop}: {each.sentence}\n  {each.command}")


def _lines(followed: Followed) -> list[tuple[str, str, str]]:
    lines = []
    if followed.outbox is not None:
        hop = followed.outbox
        lines.append(("outbox", hop.table, f"{hop.rows} waiting, {len(hop.exceeded)} exceeded"))
    for topic in followed.topics:
        last = "none" if topic.last is None else f"newest at {topic.last.offset}"
        lines.append(("topic", f"{topic.topic}[{topic.partition}]", f"{topic.records} records, {last}"))
    lines += [("table", table.table, _row(table)) for table in followed.tables]
    for journal in followed.journals:
        state = "parked" if journal.parked else f"seq_nr {journal.seq_nr}, replicated up to {journal.replicated}"
        lines.append(("journal", journal.topic, state))
    return lines


def _row(table: TableHop) -> str:
    if table.version is None:
        return "no row"
    shown = "deleted" if table.is_deleted else "a row"
    letters = f", {len(table.letters)} dead letters" if table.letters else ""
    return f"{shown} of version {table.version[0]}:{table.version[1]}{letters}"
