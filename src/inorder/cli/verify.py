"""inorder verify: marked events through a running installation, and the verdict on what became of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inorder.cli.output import AsJson, ConfigFile, open_app, say, show_json, show_table
from inorder.cli.stopping import stop_on_signals

if TYPE_CHECKING:
    from inorder.model.errors import InorderError
    from inorder.verify.history import History, Judgement

app = typer.Typer(help="Check the guarantees of a running installation.", no_args_is_help=True, rich_markup_mode=None)

_BUDGET_SECONDS = 90.0
"""After a signal, to remove topic and rows."""
_EXIT_CODES = {"ok": 0, "failed": 5, "unknown": 4}


@app.command()
def run(
    config: ConfigFile = None,
    events: Annotated[int, typer.Option(min=1, metavar="N", help="How many events to publish.")] = 1000,
    keys: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many keys they have.")] = 20,
    writers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="How many connections publish.")] = 4,
    seconds: Annotated[
        float, typer.Option(min=1, metavar="N", help="How long to wait for the last events to arrive.")
    ] = 60.0,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Publish to this topic, and look at its table if it feeds one; by default to a new topic.",
        ),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what was seen in a file, for `inorder verify check`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish marked events through the running relay, and check what arrives.

    Writes into the outbox in transactions that commit, roll back or stay open, and reads the topic with its own
    consumer: nothing may be lost, duplicated, reordered, phantom or stale. Removes its topic and rows afterwards.
    Exit 5 with the shortest witness if a guarantee was broken; 4 if it cannot be decided, because events still wait.
    """
    from inorder.model.errors import InorderError
    from inorder.verify.history import dump
    from inorder.verify.run import VerifyPlan

    plan = VerifyPlan(events=events, keys=keys, writers=writers, seconds=seconds, topic=topic)
    with open_app(config) as services, stop_on_signals("the verification", _BUDGET_SECONDS) as stop:
        verification = services.verification(plan, stop, say)
        failure: InorderError | None = None
        try:
            verification.execute()
        except InorderError as error:
            failure = error
        finally:
            if history is not None:
                lines = dump(verification.history, verification.about)
                history.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    _conclude(verification.history, as_json=as_json, failure=failure)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `inorder verify run --history` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check a history again; nothing connects. Exit codes as those of `inorder verify run`."""
    from inorder.model.errors import ConfigurationError
    from inorder.verify.history import parse

    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{str(file)!r} cannot be read: {error}.", hint="Name a file of a history.") from error
    _conclude(parse(lines), as_json=as_json)


def _conclude(found: History, *, as_json: bool, failure: InorderError | None = None) -> None:
    """Shows the verdict, then how the run failed; a broken guarantee decides the exit code."""
    from inorder.verify.history import describe, judge

    judgement = judge(found)
    witness = [describe(operation) for operation in judgement.witness]
    fields = _fields(judgement)
    if as_json:
        show_json({**fields, "witness": witness})
    else:
        show_table(fields.items())
    for line in witness:
        say(f"  {line}")
    say(_sentence(judgement))
    if failure is not None and not judgement.violations:
        raise failure
    if failure is not None:
        say(f"error {failure.code}: {failure}")
    raise typer.Exit(_EXIT_CODES[judgement.outcome.value])


def _fields(judgement: Judgement) -> dict[str, Any]:
    from inorder.verify.history import ViolationKind

    return {
        "verdict": judgement.outcome.value,
        "committed": judgement.committed,
        "rolled_back": judgement.rolled_back,
        "unanswered": judgement.unanswered,
        "delivered": judgement.delivered,
        **{kind.value: judgement.count(kind) for kind in ViolationKind},
        "waiting": judgement.waiting,
        "behind": judgement.behind,
    }


def _sentence(judgement: Judgement) -> str:
    match judgement.outcome.value:
        case "ok":
            return f"ok: {judgement.committed} committed events arrived, in order, and nothing that was rolled back."
        case "failed":
            return "failed: a guarantee was broken. The operations above show it."
    if not judgement.committed:
        return "unknown: no event was committed."
    return (
        f"unknown: {judgement.waiting} committed events did not arrive in time, {judgement.behind} rows are behind. "
        "Are relay and job running? `inorder status` shows it; --seconds waits longer."
    )
