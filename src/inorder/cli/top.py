"""inorder top: the flow of events in a terminal, from the services that the pages use."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.output import AsJson, ConfigFile, open_app, show_json, show_table
from inorder.cli.stopping import stop_on_signals
from inorder.model.printable import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inorder.operate.flow import Flow

_COLOURS = {"ok": "green", "attention": "yellow", "trouble": "red", "unknown": "dim", "unused": "dim"}
HEADER = ("hop", "health", "waiting", "oldest", "what")


def top(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit.")] = False,
    seconds: Annotated[float, typer.Option(min=0.5, max=60, help="Between readings.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show each hop of the flow and what needs attention, until Ctrl-C.

    With --json it is printed once. A server that does not answer is shown as such, and the exit code is 0.
    """
    from inorder.operate.flow import flow_of

    with open_app(config) as app:
        if as_json or once:
            flow = app.flow()
            if as_json:
                show_json(asdict(flow))
            else:
                show_table([HEADER, ("flow", flow.health, "", "", flow.sentence), *lines(flow)])
            return
        from rich.live import Live

        from inorder.operate.watch import Watch

        watching = Watch({**app.checks(), **app.parts()}, seconds=seconds)
        display = Live(screen=True, auto_refresh=False)
        with stop_on_signals("top") as stop, watching as watch, display as live:
            while not stop.is_set():
                flow = flow_of({name: reading.current for name, reading in watch.readings().items()})
                live.update(render(flow), refresh=True)
                stop.wait(seconds / 2)


def lines(flow: Flow) -> Iterator[tuple[str, str, str, str, str]]:
    """A line for each hop, then one for each concern with the command that helps."""
    from inorder.operate.flow import duration

    for hop in flow.hops:
        waiting = "" if hop.waiting is None else str(hop.waiting)
        oldest = duration(hop.oldest_seconds) if hop.oldest_seconds else ""
        yield hop.title, hop.health, waiting, oldest, hop.sentence
    for concern in flow.concerns:
        yield "", concern.health, "", "", f"{concern.sentence} {concern.command}".strip()


def render(flow: Flow) -> Any:
    """The same as a table of rich. Texts come from others: none of them is markup, and controls are escapes."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADER, title=Text(f"inorder: {escape_controls(flow.sentence)}", style=_COLOURS[flow.health]))
    for name, health, *rest in lines(flow):
        cells = [Text(escape_controls(each)) for each in (name, *rest)]
        table.add_row(cells[0], Text(health, style=_COLOURS[health]), *cells[1:])
    return table
