"""inorder topics: creates topics, and switches them to new generations; inorder pause and resume."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import (
    AsJson,
    ConfigFile,
    Reason,
    open_app,
    say,
    show_fields,
    show_json,
    show_records,
    show_table,
)
from inorder.cli.stopping import in_background, stop_on_signals

if TYPE_CHECKING:
    from inorder.topics.desired import TopicAction
    from inorder.topics.generations import TopicState
    from inorder.topics.switch import Step

app = typer.Typer(
    help="Create topics, and switch them to others without losing order.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic, by the name that publishers use.")]

STOP_SECONDS = 60.0
"""A copy that is stopped finishes its current transaction."""


@app.command()
def plan(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print what `topics apply` would do, and what only a switch can do. Changes nothing."""
    with open_app(config) as app:
        _show_actions(app.topics.plan(), as_json, "Every topic is as the settings want it.")


@app.command("apply")
def apply_plan(reason: Reason = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Create the topics of `[topics.NAME]` that are missing, and set what differs.

    It never adds partitions to a topic or removes them: keys would move and lose their order.
    """
    with open_app(config) as app:
        _show_actions(app.changes.apply_topics(reason).result, as_json, "Every topic is as the settings want it.")


@app.command()
def failover(
    name: Name,
    config: ConfigFile = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many the new topic has; by default as many as now.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The Kafka topic to switch to; by default NAME.g1 and so on.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the switch that is under way.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Switch a topic to a new Kafka topic, in order, while publishers, relay and pipeline run.

    It may be interrupted at any moment and run again: it continues where it was. For about three seconds messages
    of this topic wait; everything else is unaffected.
    """
    with open_app(config) as app:
        if cancel:
            state = app.changes.cancel_fail_over(name, reason).result
        else:
            state = app.changes.fail_over(name, reason, partitions=partitions, to=to, on_step=_say_step).result
    if state is None:
        say(f"Topic {name!r} was never switched.")
    else:
        _show_state(state, as_json)


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One topic; by default all that were switched.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the generations of topics, how far a switch is and what to do next."""
    with open_app(config) as app:
        found = app.topics.status(name)
    if as_json:
        show_json(found)
        return
    if not found:
        say("No topic has more than one generation.")
    for topic in found:
        generations = topic.pop("generations")
        show_fields(topic, as_json=False)
        show_records(generations)


@app.command()
def migrate(
    name: Name,
    config: ConfigFile = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where to; by default the topic's first generation.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Copy new records too, until a signal.")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Accept topics that were re-created, and copy from their first records.")
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Copy later generations of a topic into one Kafka topic, for readers that know no generations.

    Each record is copied exactly once, and each key keeps its order. It may be interrupted and run again. `inorder
    pipeline run migrate` does the same on Spark.
    """
    left = "What is not copied stays where it is."
    app = open_app(config)
    with stop_on_signals("the copy", STOP_SECONDS, lambda: left) as stop, app:
        changes = app.changes
        copied = in_background(
            lambda: changes.migrate(name, reason, to=to, once=not follow, stop=stop, reset=reset).result
        )
    show_fields(dict(copied), as_json)


def _say_step(step: Step) -> None:
    from inorder.topics.switch import describe

    if text := describe(step):
        say(text)


def _show_actions(found: list[TopicAction], as_json: bool, nothing: str) -> None:
    if as_json:
        show_json([{"action": action.kind, "text": str(action)} for action in found])
    elif found:
        show_table([str(action)] for action in found)
    else:
        say(nothing)


def _show_state(state: TopicState, as_json: bool) -> None:
    current = state.current
    fields = {"topic": state.topic, "generation": current.number, "kafka_topic": current.topic}
    show_fields({**fields, "partitions": current.partitions, "phase": str(state.phase), "epoch": state.epoch}, as_json)


# inorder pause and inorder resume.


class Pausable(StrEnum):
    """What can be paused, in the words of `topics/pauses.py`, which is not imported for `--help`."""

    topic = "topic"
    key = "key"
    shard = "shard"
    table = "table"
    pipeline = "pipeline"


Kind = Annotated[
    Pausable,
    typer.Argument(
        metavar="topic|key|shard|table|pipeline",
        help="A topic, a key or a shard of the relay, a table of the pipeline, or a job.",
    ),
]
Paused = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name; of a key TOPIC/KEY, of a shard its number, of a job `upsert`.")
]


def pause(
    kind: Kind,
    name: Paused,
    reason: Reason = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let messages of a topic, a key or a shard wait in the outbox, or records of a table in Kafka.

    Running relays and jobs obey within seconds, and those that start later too. Nothing is lost, the order stays, and
    everything else continues. `inorder status` shows what is paused.
    """
    from inorder.topics.pauses import PauseKind

    if not reason:
        raise typer.BadParameter("say why with --reason TEXT; the next person on call reads it")
    with open_app(config) as app:
        app.pause(PauseKind(kind.value), name, reason=reason)
    show_fields({"paused": f"{kind.value} {name}", "reason": reason}, as_json)


def resume(kind: Kind, name: Paused, reason: Reason = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """End a pause: what waited follows in order. Exit 1 if there is none."""
    from inorder.topics.pauses import PauseKind

    with open_app(config) as app:
        was_paused = app.resume(PauseKind(kind.value), name, reason=reason).result
    show_fields({"resumed": f"{kind.value} {name}" if was_paused else None}, as_json)
    if not was_paused:
        say(f"The {kind.value} {name!r} is not paused.")
        raise typer.Exit(1)
