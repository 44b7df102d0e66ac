"""Where a record stands in its topic."""

from __future__ import annotations

from dataclasses import dataclass

from inorder.model.errors import ValidationError


@dataclass(frozen=True, slots=True, order=True)
class PartitionOffset:
    """A partition and an offset in it.

    >>> str(PartitionOffset(0, 42)), PartitionOffset(0, 42) < PartitionOffset(1, 0)
    ('0:42', True)
    """

    partition: int
    offset: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0:
            raise ValidationError("partition_offset", f"{self} is below 0.")

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"
