"""Whether a cluster lets us in.

A client that is refused for its password or certificate goes on knocking, and whatever it was asked for ends with a
timeout, which says nothing. The reason comes apart from that, as an event of the client. So whoever waits for an answer
listens for such events meanwhile, and hears the reason at once.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError

from inorder.model.errors import NotAdmittedError

NOT_ADMITTED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
_STEP_SECONDS = 0.05

_HINTS = {
    KafkaError._SSL: (
        'Check kafka."ssl.ca.location", which must have signed the broker\'s certificate, and our own certificate '
        "if the broker wants one."
    ),
}
_OF_THE_LOGIN = 'Check kafka."sasl.username", kafka."sasl.password" and kafka."sasl.mechanism".'


class Client(Protocol):
    """A client of the library, as far as its events go."""

    def poll(self, timeout: float = ..., /) -> Any: ...


class Door:
    """Listens whether the cluster lets a client in; `note` is the client's `error_cb`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._refusal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """An event of the client."""
        if error.code() in NOT_ADMITTED:
            self._refusal = error

    def watch(self, client: Client, future: Future[Any]) -> None:
        """Returns when there is an answer; raises `NotAdmittedError` if there will be none."""
        while not future.done():
            client.poll(_STEP_SECONDS)
            if self._refusal is not None and not future.done():
                raise self._not_admitted(self._refusal)

    def _not_admitted(self, error: KafkaError) -> NotAdmittedError:
        hint = _HINTS.get(error.code(), _OF_THE_LOGIN)
        return NotAdmittedError(f"Kafka at {self._servers} does not let us in: {error.str()}.", hint=hint)
