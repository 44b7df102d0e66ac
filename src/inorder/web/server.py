"""Serves the site with uvicorn, on a thread, until it is stopped."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final, Self

import uvicorn

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings
from inorder.web.backend import Open, WebBackend
from inorder.web.site import create_site

STOP_SECONDS: Final = 5
_WAITING: Final = 128


class WebService:
    """Listens while the block lasts."""

    def __init__(self, settings: Settings, open_app: Open | None = None) -> None:
        self._settings = settings
        self._backend = WebBackend(settings, open_app)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where pages are; the actual port where 0 was requested."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def __enter__(self) -> Self:
        self._socket = _listen(*self._settings.web.address)
        try:
            site = create_site(self._backend.__enter__())
        except BaseException:
            self._socket.close()
            raise
        # The address of a client is that of the connection: `X-Forwarded-For` is for anyone to send.
        config = uvicorn.Config(
            site,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="inorder-web", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backend.stopping.set()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
        self._backend.__exit__(kind, error, trace)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_WAITING)
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"web.listen = {host}:{port}: cannot listen on this address: {error}.",
            hint="Choose another port, or stop the process that uses it.",
        ) from error
    return found
