"""What your own Spark application calls: `run`, `upsert_batch`, `register`, `in_order`, `by_key` and `delta_rows`.

Each name is loaded when it is first used: PySpark is heavy, and `import inorder` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inorder.engines.formats import in_order
    from inorder.pipeline.formats import by_key
    from inorder.pipeline.stores.delta_table import delta_rows
    from inorder.spark.formats import register, upsert_batch
    from inorder.spark.jobs import run

__all__ = ["by_key", "delta_rows", "in_order", "register", "run", "upsert_batch"]

_HOMES = {
    "by_key": "inorder.pipeline.formats",
    "delta_rows": "inorder.pipeline.stores.delta_table",
    "in_order": "inorder.engines.formats",
    "register": "inorder.spark.formats",
    "run": "inorder.spark.jobs",
    "upsert_batch": "inorder.spark.formats",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'inorder.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
