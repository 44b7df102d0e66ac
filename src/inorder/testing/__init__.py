"""For your tests: journals without servers. For ours as well: the checkers that prove the guarantees.

from inorder.testing import MemoryJournals
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder.testing.memory_journal import IN_STEP, NEVER, AsyncMemoryJournals, MemoryJournals, Regime

__all__ = ["IN_STEP", "NEVER", "AsyncMemoryJournals", "MemoryJournals", "Regime"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'inorder.testing' has no attribute {name!r}")
    return getattr(import_module("inorder.testing.memory_journal"), name)
