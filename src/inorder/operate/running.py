"""What runs: since when shards have their owners, and what the process that answers at `health.listen` serves.

A database does not know what a process has in flight, how long its slices take, nor when a term began. The first two
are in the metrics of the process itself, if it runs where this one does: `health.listen` is the address of both. The
third is what this process has seen: a change of owner has a time here only if it happened while this process watched.
"""

from __future__ import annotations

from collections import defaultdict
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


def job_figures(samples: Iterable[Sample] | None) -> list[dict[str, Any]]:
    """The slices, phases and refusals of each job since it started; none where no job answers.

    The mean of no slices is None. `phases` are seconds, `refused` are records by code.
    """
    jobs: dict[str, list[Sample]] = defaultdict(list)
    for each in samples or ():
        if each.name.startswith("inorder_pipeline_") and "job" in each.labels:
            jobs[each.labels["job"]].append(each)
    return [_job(job, own) for job, own in sorted(jobs.items())]


def _job(job: str, own: Sequence[Sample]) -> dict[str, Any]:
    def total(name: str) -> float:
        return sum(each.value for each in own if each.name == f"inorder_pipeline_{name}")

    def by(name: str, label: str) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for each in own:
            if each.name == f"inorder_pipeline_{name}":
                found[each.labels[label]] += each.value
        return dict(found)

    slices = int(total("slice_seconds_count"))
    return {
        "job": job,
        "running": bool(total("running")),
        "slices": slices,
        "slice_seconds": round(total("slice_seconds_sum") / slices, 3) if slices else None,
        "slice_records": round(total("slice_records_sum") / slices, 1) if slices else None,
        "phases": {name: round(seconds, 3) for name, seconds in by("phase_seconds_total", "phase").items()},
        "refused": {code: int(count) for code, count in by("refused_records_total", "code").items()},
        "restarts": int(total("restarts_total")),
    }


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
