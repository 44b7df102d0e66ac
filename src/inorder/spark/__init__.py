"""The only room that knows PySpark.

`register`, `in_order` and `by_key` are for your own Spark applications (docs/pipeline.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder.spark.formats.lanes import by_key
    from inorder.spark.formats.whole import in_order
    from inorder.wiring.formats import register

__all__ = ["by_key", "in_order", "register"]

# By name and when they are first used: PySpark is heavy, and formats are put together in a room above this one.
_HOMES = {
    "by_key": "inorder.spark.formats.lanes",
    "in_order": "inorder.spark.formats.whole",
    "register": "inorder.wiring.formats",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'inorder.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
