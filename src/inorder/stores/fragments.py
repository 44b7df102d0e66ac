"""What every outbox store puts into its statements: the fragments of its layout and the rule of its shard."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from inorder.model.errors import ConfigurationError
from inorder.model.shard import Shard
from inorder.outbox.layouts import Layout, quoted_table
from inorder.sql import Statements

WHOLE = Shard()


def fragments(statements: Statements, layout: Layout, table: str, shard: Shard) -> dict[str, str]:
    """By the names that the statements give them; `mine` is made from the statement of that name."""
    mine = "TRUE"
    if not shard.is_whole:
        mine = statements.render(
            "mine", topic=layout.topic, key=layout.key, id=layout.id, shards=str(shard.count), shard=str(shard.index)
        )
    return {
        "table": quoted_table(layout.dialect, table),
        "id": layout.id,
        "columns": layout.columns,
        "mine": mine,
        "leader_id": layout.leader_id or "",
    }


def refuse_unmarkable(layout: Layout) -> None:
    """Raises for a layout whose rows have no place for a mark."""
    if layout.leader_id is None:
        raise ConfigurationError(
            f"Rows of the layout {layout.name!r} cannot be marked.", hint='Set relay.strategy = "drain".'
        )


def bound_ids(ids: Sequence[int]) -> str:
    """A list of ids as one value, where the driver cannot bind lists: a JSON text."""
    return orjson.dumps(list(ids)).decode()
