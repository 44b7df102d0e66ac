"""inorder doctor: what of the machine, the database and Kafka is not as it must be."""

from __future__ import annotations

from dataclasses import asdict

import typer

from inorder.cli.options import AsJson, ConfigFile, load
from inorder.cli.output import say, show_json, show_table


def doctor(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check machine, database and Kafka.

    Looks at Java, disk, reachability, rights, tables, indexes and topic settings, changes nothing, and says
    what to do. Exit 4 where something is unreachable, 3 where something is wrong.
    """
    from inorder.doctor import examine, exit_code

    checks = examine(load(config))
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        show_table((check.status, check.name, check.detail) for check in checks)
        for check in checks:
            if check.hint and check.status != "ok":
                say(f"{check.name}: {check.hint}")
    raise typer.Exit(exit_code(checks))
