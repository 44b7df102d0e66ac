"""Whose ids a marker speaks of: the outbox signs its markers, and a relay of another one refuses to go by them.

Ids are only unique within one table. Two services with the same `relay.group` on one cluster, or a service whose tables
were made anew, would find a marker that names ids of other rows, and purge their own as published: lost without a
trace. So each outbox has a random name, kept beside its registration, and every marker carries the name of the outbox
that it is about. A marker without a name is of an earlier version, and taken at its word.

| what                                       | then                                                                   |
|---|---|
| two outboxes share a group                 | whoever comes second is refused before it purges or sends anything     |
| the tables were dropped and made anew      | refused; `inorder relay reshard --restored` begins anew                |
| the database was restored from a backup    | the name is the same: that it was restored must be said, as ever       |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from inorder.model.errors import ConfigurationError
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.shard_log import ShardLog

_FIELD = "outbox"


class SigningShardLog:
    """A `ShardLog` around a fenced one; `identity` is asked behind the fence."""

    def __init__(self, log: ShardLog, identity: Callable[[], str], group: str, *, is_restored: bool = False) -> None:
        self._log = log
        self._ask_identity = identity
        self._group = group
        self._is_restored = is_restored
        self._signature = b""

    def take_over(self) -> bytes | None:
        """Takes over; a marker of another outbox is refused, unless this one is said to be restored."""
        marker = self._log.take_over()
        identity = self._ask_identity()
        self._signature = f'{{"{_FIELD}": "{identity}", '.encode()
        found, unsigned = _unsigned(marker)
        if found is not None and found != identity and not self._is_restored:
            raise ConfigurationError(
                f"The markers of relay.group = {self._group!r} are those of another outbox: their ids are not ours.",
                hint="Give each outbox a group of its own. If these tables were made anew, run"
                " `inorder relay reshard --restored`.",
            )
        return unsigned

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Publishes, the marker signed."""
        self._log.publish(rows, self._signature + marker[1:])

    def close(self) -> None:
        """Drops the producer; `take_over` may follow."""
        self._log.close()


def _unsigned(marker: bytes | None) -> tuple[str | None, bytes | None]:
    """Who signed a marker, and the marker itself; what cannot be read is left to whoever decodes it."""
    try:
        fields = json.loads(marker or b"")
        signer = fields.pop(_FIELD, None)
    except (ValueError, AttributeError, TypeError):
        return None, marker
    return signer, json.dumps(fields).encode()
