"""The command line as a whole: its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from typing import Annotated

import typer

from inorder.cli import bench, inspect, journal, pipeline, relay, set_aside, set_up, top, topics, verify, web
from inorder.cli import relay as outbox
from inorder.cli.init import init
from inorder.cli.output import say
from inorder.model.errors import InorderError
from inorder.model.secrets import mask_text

_SUMMARY = "Events from your database transaction, through Kafka, to your tables: exactly once, in order per key."
_EPILOGUE = "Exit codes: 0 done, 1 failed, 2 usage, 3 configuration, 4 dependency unreachable, 5 guarantee violated."

app = typer.Typer(
    name="inorder",
    help=_SUMMARY,
    epilog=_EPILOGUE,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("init")(init)
app.command("demo")(set_up.demo)
app.command("up")(set_up.up)
app.add_typer(set_up.schema_app, name="schema")
app.add_typer(relay.app, name="relay")
app.add_typer(outbox.outbox_app, name="outbox")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(topics.app, name="topics")
app.command("pause")(topics.pause)
app.command("resume")(topics.resume)
app.add_typer(set_aside.exceeded_app, name="exceeded")
app.add_typer(set_aside.dead_letters_app, name="dead-letters")
app.add_typer(set_aside.actions_app, name="actions")
app.add_typer(journal.app, name="journal")
app.add_typer(inspect.key_app, name="key")
app.add_typer(bench.app, name="bench")
app.command("status")(inspect.status)
app.command("top")(top.top)
app.command("web")(web.web)
app.add_typer(inspect.observe_app, name="observe")
app.command("doctor")(inspect.doctor)
app.add_typer(verify.app, name="verify")
app.add_typer(inspect.config_app, name="config")


def _installed_version() -> str:
    from importlib import metadata  # here, because it takes longer to load than the rest of this module

    try:
        return metadata.version("inorder")
    except metadata.PackageNotFoundError:
        return "(not installed: it runs from its source folder)"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inorder {_installed_version()}")
        raise typer.Exit


@app.callback(help=_SUMMARY)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Has the options that are given before a command."""


def main() -> int:
    """Runs the command line; what it returns is the exit code."""
    try:
        app(prog_name="inorder")
    except InorderError as error:
        _print_error(error)
        return error.exit_code
    except Exception:  # noqa: BLE001 - the outermost boundary: nothing may end in a bare traceback
        _print_unexpected()
        return 1
    return 0


def _print_error(error: InorderError) -> None:
    if "--json" in sys.argv[1:]:
        fields = {"code": error.code, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        say(json.dumps({"error": fields}, ensure_ascii=False))
    else:
        say(f"error {error.code}: {error.message}")
        if error.hint:
            say(error.hint)
    if _wants_traceback():
        sys.stderr.write(_masked_traceback())


def _print_unexpected() -> None:
    kind, error, _ = sys.exc_info()
    sentence = f"error: unexpected {kind.__name__ if kind else 'error'}: {mask_text(str(error))}"
    if _wants_traceback():
        sys.stderr.write(_masked_traceback())
        say(sentence)
        return
    say(f"{sentence}\nThis is a fault of inorder. {_write_traceback()}")


def _wants_traceback() -> bool:
    return os.environ.get("INORDER_TRACEBACK") == "1"


def _masked_traceback() -> str:
    """Drivers quote URLs and properties in their errors, which are causes of ours."""
    return mask_text(traceback.format_exc())


def _write_traceback() -> str:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="inorder-", suffix=".log", delete=False) as file:
            file.write(_masked_traceback())
    except OSError:
        return "Run it again with INORDER_TRACEBACK=1 to see where."
    return f"Its traceback is in {file.name}."
