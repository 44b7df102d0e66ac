"""The first record of a producer in a partition travels alone, whenever the broker may not know the producer there."""

from __future__ import annotations

from inorder.kafka.sender import FirstContact
from inorder.model.message import OutboxRow


def row(id: int, *, key: bytes = b"k", partition: int | None = None) -> OutboxRow:
    return OutboxRow(id, "t", key, b"", (), partition, None)


def ids(waves: list[list[OutboxRow]]) -> list[list[int]]:
    return [[each.id for each in wave] for wave in waves]


def test_a_silent_hour_makes_the_first_record_travel_alone_again() -> None:
    """A broker forgets producers that were silent for long, and then takes any record of theirs for the first."""
    now = [0.0]
    contact = FirstContact({}, clock=lambda: now[0])
    rows = [row(id, key=key) for id, key in enumerate([b"a", b"b", b"a", b"c"])]
    first, rest = contact.waves(rows, {"t": 1})
    assert ids([first, rest]) == [[0], [1, 2, 3]]
    assert len(contact.waves(rows, {"t": 1})) == 2, "not yet acknowledged"
    contact.note_acknowledged(first)
    assert contact.waves(rows, {"t": 1}) == [rows]
    now[0] = 3601.0
    assert len(contact.waves(rows, {"t": 1})) == 2


def test_partitions_added_to_a_topic_in_use_get_a_first_record_of_their_own() -> None:
    contact = FirstContact({})
    first, _ = contact.waves([row(1, partition=0), row(2, partition=0)], {"t": 1})
    contact.note_acknowledged(first)
    grown = [row(3, partition=0), row(4, partition=1), row(5, partition=1)]
    assert ids(contact.waves(grown, {"t": 2})) == [[4], [3, 5]]
    contact.note_acknowledged([grown[1]])
    assert contact.waves(grown, {"t": 2}) == [grown]
