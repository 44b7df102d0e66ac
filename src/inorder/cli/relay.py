"""inorder relay: carries rows of the outbox to Kafka."""

from __future__ import annotations

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_fields
from inorder.cli.stopping import stop_on_signals

app = typer.Typer(help="Carry outbox rows to Kafka.", no_args_is_help=True, rich_markup_mode=None)

# How soon a relay that ended by itself is noticed; a signal is noticed at once by the relay's own threads.
_LOOK_SECONDS = 0.2


@app.command()
def run(config: ConfigFile = None) -> None:
    """Run the relay until a signal.

    SIGTERM or Ctrl-C lets it finish the batch in hand, within 10 s.
    """
    from inorder.wiring import Relay

    settings = load(config)
    with stop_on_signals("the relay") as stop, Relay(settings) as relay:
        say(f"The relay of group {settings.relay.group} runs. Ctrl-C stops it.")
        while not stop.is_set() and not relay.wait(_LOOK_SECONDS):
            pass


@app.command()
def status(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print how much waits in the outbox and who owns it."""
    from inorder.wiring import relay_status

    show_fields(relay_status(load(config)), as_json)
