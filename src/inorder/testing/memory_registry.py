"""The registration of a relay in memory, for simulations; the databases' pass the same contract suite."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from inorder.model.errors import ConfigurationError
from inorder.ports.registry import Registration, Setup


class MemoryRegistry:
    """One table's registration."""

    def __init__(self, outbox: str = "outbox") -> None:
        self._outbox = outbox
        self._lock = Lock()
        self._found: Registration | None = None

    def register(self, wanted: Setup) -> Registration:
        """Registers the first that asks."""
        with self._lock:
            if self._found is None:
                self._found = Registration(self._outbox, wanted.group, wanted.strategy, wanted.shards, 1)
            return self._found

    def read(self) -> Registration | None:
        """What is registered."""
        return self._found

    def begin_change(self, wanted: Setup) -> Registration:
        """Notes the target."""
        with self._lock:
            found = self._required()
            if found.target is None:
                found = replace(found, epoch=found.epoch + 1, target=wanted)
            if found.target != wanted:
                raise ConfigurationError(f"The relay is being changed to {found.target}, not to {wanted}.")
            self._found = found
            return found

    def finish_change(self) -> Registration:
        """Makes the target what is registered."""
        with self._lock:
            found = self._required()
            if found.target is not None:
                new = found.target
                found = Registration(self._outbox, new.group, new.strategy, new.shards, found.epoch)
            self._found = found
            return found

    def close(self) -> None:
        """Nothing to close."""

    def _required(self) -> Registration:
        if self._found is None:
            raise ConfigurationError(f"No relay is registered for the table {self._outbox!r}.")
        return self._found
