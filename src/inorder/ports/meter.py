"""What measured parts tell: how long something took, and how many there were.

The parts know nothing about Prometheus. `observe/journal_metrics.py` gives each name its meaning; a name that it does
not know is an error of ours and is raised. Labels are names of topics and words of ours, never keys or ids.
"""

from __future__ import annotations

from typing import Final, Protocol


class Meter(Protocol):
    """Hears figures; called from any thread, often, so it must be quick and never wait."""

    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Something has taken so long."""

    def add(self, name: str, number: float, *labels: str) -> None:
        """There were so many more."""


class _Silent:
    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Nothing."""

    def add(self, name: str, number: float, *labels: str) -> None:
        """Nothing."""


SILENT: Final[Meter] = _Silent()
"""Where nobody wants to know."""
