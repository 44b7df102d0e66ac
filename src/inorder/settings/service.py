"""[health]: where a running relay or job of the pipeline tells how it is."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from inorder.settings.section import Section

HOST_DEFAULT = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):)?(?P<port>\d{1,5})")
_LAST_PORT = 65_535


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`, or of a port alone."""
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise ValueError(listen)
    return (found["host"] or HOST_DEFAULT).strip("[]"), int(found["port"])


def _checked(listen: str) -> str:
    try:
        if listen:
            address_of(listen)
    except ValueError:
        expected = {"expected": "an address such as 127.0.0.1:13000, or a port alone"}
        raise PydanticCustomError("spelling", "{expected}", expected) from None
    return listen


class HealthSettings(Section):
    """How a running relay or job answers those who ask how it is. There is no password: keep the address private."""

    listen: Annotated[str, AfterValidator(_checked)] = Field(
        default="",
        description=(
            "The address to listen on, such as `127.0.0.1:13000`, or a port alone, which means `127.0.0.1`. "
            "`/health` answers 200 and `Pong` while `inorder relay run` or `inorder pipeline run` works, else 503 and "
            "why not; `/metrics` is for Prometheus. An empty line over plain TCP is answered with `Pong` too. "
            "Empty: nobody listens."
        ),
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, or None where nobody listens."""
        return address_of(self.listen) if self.listen else None


# [log]: what the commands tell while they run.

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
