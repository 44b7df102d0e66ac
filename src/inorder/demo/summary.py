"""What the demo has to say at the end: figures, and whether each guarantee held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from inorder.demo.path import Position
from inorder.demo.writers import Committed
from inorder.kafka.read_back import ReadRecord
from inorder.testing.checker import Event, Verdict, check_delivery, check_placement, check_rows, fold_updates


class Found(Protocol):
    """What is there to be read after a run."""

    def records(self) -> list[ReadRecord]:
        """Every committed record of the topic."""

    def rows(self) -> dict[int, dict[str, object]]:
        """The target table."""

    def position(self) -> Position:
        """The pipeline's own figures."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The object that `--json` prints, and the words behind it."""

    committed: int
    published: int
    applied: int
    rejected: int
    verdict: Verdict
    seconds: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Whether every guarantee held."""
        return self.verdict.holds

    def as_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {
            "committed": self.committed,
            "published": self.published,
            "applied": self.applied,
            "rejected": self.rejected,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "out_of_order": self.verdict.out_of_order,
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
        }


def summarise(path: Found, entries: Sequence[Committed], seconds: Mapping[str, float]) -> Summary:
    """Reads topic and table back and compares them with what the writers committed."""
    records = path.records()
    position = path.position()
    committed = [_event(entry) for entry in entries]
    verdict = check_delivery(committed, (_event_of(record) for record in records))
    verdict += check_placement((record.key, record.partition) for record in records)
    verdict += check_rows(_expected_rows(entries), path.rows())
    verdict += _check_figures(len(records), position.processed, position.rejected, entries)
    return Summary(len(entries), len(records), position.applied, position.rejected, verdict, seconds)


def _event(entry: Committed) -> Event:
    return entry.key, entry.place


def _event_of(record: ReadRecord) -> Event:
    value = orjson.loads(record.value or b"{}")
    return value["id"], value["place"]


def _expected_rows(entries: Sequence[Committed]) -> dict[int, dict[str, object]]:
    histories: dict[int, list[tuple[int, dict[str, object]]]] = defaultdict(list)
    for entry in entries:
        if entry.is_valid:
            histories[entry.key].append((entry.place, entry.fields))
    nothing = {"enabled": None, "data": None}
    return {key: nothing | fold_updates(history) for key, history in histories.items()}


def _check_figures(published: int, processed: int, rejected: int, entries: Sequence[Committed]) -> Verdict:
    """The pipeline counts in the commits that it counts, so its sums tell of records applied twice or not at all."""
    invalid = sum(not entry.is_valid for entry in entries)
    words = []
    if processed != published:
        words.append(f"{processed} records were applied or rejected of {published} published")
    if rejected != invalid:
        words.append(f"{rejected} records were rejected and {invalid} were invalid")
    return Verdict(
        lost=max(0, published - processed) + max(0, rejected - invalid),
        duplicated=max(0, processed - published),
        phantom=max(0, invalid - rejected),
        examples=tuple(words),
    )
