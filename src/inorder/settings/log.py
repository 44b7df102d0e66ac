"""[log]: what the commands tell while they run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from inorder.settings.section import Section

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]


class LogSettings(Section):
    """Logs of the commands, on stderr. A program that uses the library keeps its own logging."""

    level: Level = Field(
        default="info",
        description=("The least important line that is shown. `debug` tells each batch; it never shows a payload."),
    )
    format: Format = Field(
        default="auto",
        description=(
            "`console` is for people, `json` for collectors, `auto` is console on a terminal and json elsewhere."
        ),
    )
