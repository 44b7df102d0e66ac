"""inorder web: pages and an HTTP API for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from inorder.cli.output import ConfigFile, load, say
from inorder.cli.stopping import stop_on_signals
from inorder.model.errors import ConfigurationError

if TYPE_CHECKING:
    from inorder.web.server import WebService


def web(
    config: ConfigFile = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Where to listen; by default `web.listen`.")
    ] = None,
) -> None:
    """Serve pages and an HTTP API for operators until a signal.

    Shows the flow of events, follows keys, retries and discards what was set aside. Serves /api/v1, /livez, /readyz
    and /metrics too. Another address than loopback needs `web.token` or `web.trusted_header`; else exit 3.
    """
    settings = load(config, **({} if listen is None else {"web": {"listen": listen}}))
    serve = import_service()
    with stop_on_signals("the site") as stop, serve(settings) as service:
        say(f"Serves pages at {service.url} and the API at {service.url}api/v1. Ctrl-C stops it.")
        stop.wait()


def import_service() -> type[WebService]:
    """The service of the pages; a hint where its packages are missing."""
    try:
        from inorder.web.server import WebService
    except ImportError as error:
        raise ConfigurationError(
            f"The pages need packages that are not installed: {error.name} is missing.",
            hint='Install the extra: pip install "inorder[web]".',
        ) from error
    return WebService
