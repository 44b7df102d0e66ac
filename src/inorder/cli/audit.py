"""The job `audit` on a terminal: a line for each finding as it comes, then totals; a difference is exit code 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from inorder.cli.output import say, show_fields, show_json
from inorder.cli.stopping import in_background, stop_on_signals
from inorder.model.errors import GuaranteeError

if TYPE_CHECKING:
    from inorder.journal.audit.findings import Finding
    from inorder.settings import Settings


def run_and_show(settings: Settings, topic: str | None, id: str | None, as_json: bool) -> None:
    """Runs the job; raises `GuaranteeError` where topics and store differ."""
    from inorder.wiring import run_audit

    def tell(finding: Finding) -> None:
        if as_json:
            show_json(finding.as_dict())
        else:
            typer.echo(line_of(finding))

    say("The job audit compares the store with its topics.")
    with stop_on_signals("the job audit") as stop:
        totals = in_background(lambda: run_audit(settings, stop=stop, tell=tell, topic=topic, id=id))
    show_fields(totals, as_json)
    if count := totals["differences"]:
        raise GuaranteeError(
            f"The store differs from its topics in {count:,} {'place' if count == 1 else 'places'}.",
            hint="The topics decide. docs/operations.md has the steps that make a store right again.",
        )


def line_of(finding: Finding) -> str:
    """A finding in a line: what, where, what the topic has and what the store has."""
    where = finding.topic if finding.id is None else f"{finding.topic}:{finding.id}"
    parts = [f"{finding.kind}: {where}"]
    if finding.seq_nr is not None:
        parts.append(f"seq_nr {finding.seq_nr}")
    if finding.partition is not None:
        parts.append(f"at {finding.partition}:{'?' if finding.offset is None else finding.offset}")
    parts += [f"topic: {finding.in_topic}"] if finding.in_topic else []
    parts += [f"store: {finding.in_store}"] if finding.in_store else []
    return "; ".join(parts)
