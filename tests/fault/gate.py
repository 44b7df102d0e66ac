"""A gate in front of a server: open, it forwards everything; shut, it refuses and counts connections."""

from __future__ import annotations

from sqlalchemy.engine import make_url

from inorder.embedded.server import HOST
from tests.proxy import Proxy


class Gate(Proxy):
    """An address of a server that can be closed without touching the server."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        super().__init__((self._url.host or HOST, self._url.port or 5432))
        self._is_open = True
        self.turned_away = 0

    @property
    def url(self) -> str:
        """The URL of the server through this gate."""
        return self._url.set(host=HOST, port=self.port).render_as_string(hide_password=False)

    def shut(self) -> None:
        """Closes all connections and refuses new ones."""
        with self._lock:
            self._is_open = False
            self.end_connections()

    def open(self) -> None:
        """Accepts connections again."""
        with self._lock:
            self._is_open = True

    def admits(self) -> bool:
        self.turned_away += not self._is_open
        return self._is_open
