"""The dead letters of a table store in memory, as people meet them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from inorder.ports.dead_letters import Filter, LetterPlace, StoredLetter
from inorder.testing.memory_table_store import MemoryTableStore

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryDeadLetters:
    """Reads what is committed; all letters are of one pipeline and of generation 0."""

    def __init__(self, store: MemoryTableStore, pipeline: str = "test", newest_generation: int = 0) -> None:
        self._store = store
        self._pipeline = pipeline
        self._newest_generation = newest_generation

    def counts(self, wanted: Filter) -> dict[str, int]:
        return dict(Counter(letter.code for letter in self._matching(wanted)).most_common())

    def places(self, wanted: Filter) -> list[LetterPlace]:
        return sorted({letter.place for letter in self._matching(wanted)})

    def page(self, place: LetterPlace, wanted: Filter, above: int = -1, most: int = 1000) -> list[StoredLetter]:
        found = [one for one in self._matching(wanted) if one.place == place and one.offset > above]
        return sorted(found, key=lambda one: one.offset)[:most]

    def never_applied(self, place: LetterPlace, above: int) -> frozenset[int]:
        contents = self._store.contents
        discarded = [at for at, (action, _) in contents.settled.items() if action == "discard"]
        places = [*contents.letters, *discarded]
        return frozenset(at[2] for at in places if at[:2] == place[1:] and at[2] > above)

    def newest_generation(self, pipeline: str) -> int:
        return self._newest_generation if pipeline == self._pipeline else 0

    def discard(self, wanted: Filter, reason: str) -> int:
        letters = list(self._matching(wanted))
        for letter in letters:
            with self._store.slice_transaction(letter.topic, letter.partition) as transaction:
                transaction.settle(letter.offset, "discard", reason)
        return len(letters)

    def close(self) -> None:
        """Memory needs no connection."""

    def _matching(self, wanted: Filter) -> Iterator[StoredLetter]:
        asked = {name: value for name in _FIELDS if (value := getattr(wanted, name)) is not None}
        for (topic, partition, offset), letter in self._store.contents.letters.items():
            stored = StoredLetter(
                self._pipeline,
                topic,
                partition,
                offset,
                0,
                letter.code,
                letter.detail,
                letter.key,
                letter.value,
                letter.timestamp,
                _NOW,
            )
            if all(getattr(stored, name) == value for name, value in asked.items()):
                yield stored


_FIELDS = ("pipeline", "topic", "partition", "offset", "code", "key")
