"""What runs: since when shards have their owners, and what the process that answers at `health.listen` serves.

A database does not know what a process has in flight, nor when a term began. The first is in the metrics of the
process itself, if it runs where this one does: `health.listen` is the address of both. The second is what this process
has seen: a change of owner has a time here only if it happened while this process watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.samples import Sample

_RELAY: Final = {
    "inorder_relay_in_flight_events": "in_flight",
    "inorder_relay_published_total": "published",
    "inorder_relay_exceeded_total": "exceeded",
    "inorder_relay_terms_total": "terms",
}


def relay_figures(samples: Iterable[Sample] | None, group: str) -> dict[str, Any] | None:
    """What the relay of a group has in flight and has done since it started; None where it does not answer."""
    own = [each for each in samples or () if each.labels.get("group") == group]
    found: dict[str, Any] = {_RELAY[each.name]: int(each.value) for each in own if each.name in _RELAY}
    if not found:
        return None
    errors = [each.labels["error"] for each in own if each.name == "inorder_relay_last_error_info"]
    leads = any(each.name == "inorder_relay_is_leader" and each.value for each in own)
    return {**dict.fromkeys(_RELAY.values()), **found, "leads": leads, "error": errors[0] if errors else ""}


class OwnerTimes:
    """Since when each shard has its owner, as far as this object saw it; for one thread."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._rows: dict[int, dict[str, Any]] = {}

    def note(self, owners: Sequence[str | None], terms: Sequence[int | None]) -> list[dict[str, Any]]:
        """A row for each shard; `since` is None for an owner that was there at the first look."""
        for shard, (owner, term) in enumerate(zip(owners, terms, strict=True)):
            before, row = self._rows.get(shard), {"shard": shard, "owner": owner, "term": term, "since": None}
            if before is not None:
                is_same = (before["owner"], before["term"]) == (owner, term)
                row["since"] = before["since"] if is_same else self._clock().isoformat(timespec="seconds")
            self._rows[shard] = row
        return [self._rows[shard] for shard in range(len(owners))]
