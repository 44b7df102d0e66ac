"""What `inorder top` shows: texts of others are neither markup nor control sequences."""

from __future__ import annotations

from io import StringIO
from typing import cast, get_args

from rich.console import Console

from inorder.cli.top import _COLOURS, lines, render
from inorder.operate.flow import Concern, Flow, FlowHop, Health

FLOW = Flow(
    "trouble",
    "One hop is in trouble.",
    (FlowHop("outbox", "Outbox", "ok", "Rows wait.", 3, 75.0), FlowHop("kafka", "Kafka", "trouble", "No answer.")),
    (Concern("attention", "The key t/[red]\x1b[31m is paused.", "topics", "inorder resume key t/k"),),
)


def test_each_hop_and_each_concern_has_a_line() -> None:
    outbox, kafka, concern = lines(FLOW)
    assert outbox[:3] == ("Outbox", "ok", "3")
    assert kafka == ("Kafka", "trouble", "", "", "No answer.")
    assert concern[4].endswith("inorder resume key t/k")


def test_the_terminal_shows_texts_as_they_are() -> None:
    console = Console(width=200, file=StringIO(), force_terminal=False)
    console.print(render(FLOW))
    text = cast("StringIO", console.file).getvalue()
    assert "[red]" in text
    assert "\x1b" not in text
    assert "One hop is in trouble." in text


def test_every_health_has_a_colour_and_a_hop_that_is_not_used_is_shown() -> None:
    assert set(_COLOURS) == set(get_args(Health))
    console = Console(width=200, file=StringIO(), force_terminal=False)
    unused = FlowHop("journal", "Journals", "unused", "No topic holds journals.")
    console.print(render(Flow("ok", "All events have arrived.", (unused,), ())))
    assert "No topic holds journals." in cast("StringIO", console.file).getvalue()
