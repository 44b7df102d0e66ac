"""Which journal: an id within a topic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from inorder.model.errors import ValidationError
from inorder.model.message import Limits, Message, encode


@total_ordering
@dataclass(frozen=True, slots=True)
class Key:
    """Names one journal; `id` is the key of its records, so it decides their partition.

    >>> str(Key("account-1", "journal"))
    'journal:account-1'
    """

    id: str
    topic: str

    def __post_init__(self) -> None:
        given: object = self.id
        if not isinstance(given, str) or not given:
            raise ValidationError("id", f"{given!r} is not an id.", hint="The id of a journal is text, not empty.")
        # What Kafka would refuse as a record's topic or key is refused in the same words.
        encode(Message(self.topic, key=self.id), Limits())

    def __lt__(self, other: Key) -> bool:
        return (self.topic, self.id) < (other.topic, other.id)

    def __str__(self) -> str:
        return f"{self.topic}:{self.id}"
