"""inorder topics: topics as they should be, and switching them to new generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import AsJson, ConfigFile, load, say, show_fields, show_json, show_table
from inorder.cli.stopping import in_background, stop_on_signals

if TYPE_CHECKING:
    from inorder.topics.desired import TopicAction
    from inorder.topics.generations import TopicState
    from inorder.topics.switch import Step

app = typer.Typer(
    help="Make topics, and switch them to others without losing order.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic, by the name that publishers use.")]

STOP_SECONDS = 60.0
"""A copy that is stopped lets the transaction in hand end."""


@app.command()
def plan(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print what `topics apply` would do, and what only a switch can do. Nothing is changed."""
    from inorder.operate.topics import plan_topics

    _show_actions(plan_topics(load(config)), as_json, "Every topic is as the settings want it.")


@app.command("apply")
def apply_plan(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Make the topics of `[topics.NAME]` that are missing, and set what differs.

    No partition is ever added to a topic or taken away: its keys would move and lose their order.
    """
    from inorder.operate.topics import apply_topics

    _show_actions(apply_topics(load(config)), as_json, "Every topic is as the settings want it.")


@app.command()
def failover(
    name: Name,
    config: ConfigFile = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many the new topic has; as many as now if left out.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The Kafka topic to switch to; NAME.g1 and so on if left out.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Give up the switch that is under way.")] = False,
    as_json: AsJson = False,
) -> None:
    """Switch a topic to a new Kafka topic, in order, while publishers, relay and pipeline go on.

    It may be broken off at any moment and run again: it goes on where it was. For about three seconds messages of
    this topic wait; everything else is untouched.
    """
    from inorder.operate.topics import cancel_fail_over, fail_over

    settings = load(config)
    if cancel:
        state = cancel_fail_over(settings, name)
        if state is None:
            say(f"Topic {name!r} was never switched.")
            return
    else:
        state = fail_over(settings, name, partitions=partitions, to=to, on_step=_tell)
    _show_state(state, as_json)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One topic; else all that were switched.")] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the generations of topics, where a switch stands and what to do next."""
    from inorder.operate.topics import generations_status

    found = generations_status(load(config), name)
    if as_json:
        show_json(found)
        return
    if not found:
        say("No topic has more than one generation.")
    for topic in found:
        generations = topic.pop("generations")
        show_fields(topic, as_json=False)
        show_table([list(generations[0]), *(each.values() for each in generations)])


@app.command()
def migrate(
    name: Name,
    config: ConfigFile = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where to; the topic's first generation if left out.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until a signal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy later generations of a topic into one Kafka topic, for readers that know no generations.

    Each record is copied exactly once, and each key keeps its order. It may be broken off and run again. `inorder
    pipeline run migrate` does the same on Spark.
    """
    from inorder.topics.migration import migrate_topic

    settings = load(config)
    with stop_on_signals("the copy", STOP_SECONDS, lambda: "What is not copied stays where it is.") as stop:
        copied = in_background(lambda: migrate_topic(settings, name, to=to, once=not follow, stop=stop))
    show_fields(dict(copied), as_json)


def _tell(step: Step) -> None:
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
