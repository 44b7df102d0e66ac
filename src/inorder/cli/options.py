"""Options that commands share, and what they turn into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from inorder.settings import Settings

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings; ./inorder.toml where it exists. INORDER_SECTION__FIELD variables go over it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with what was done.")]


def load(config: Path | None, **overrides: dict[str, Any]) -> Settings:
    """The settings of a command, with its logs set up as they say."""
    from inorder.observe import configure_logs
    from inorder.settings import Settings

    settings = Settings.load(config, **overrides)
    configure_logs(settings.log.level, settings.log.format)
    return settings
