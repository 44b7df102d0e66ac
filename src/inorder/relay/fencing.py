"""Ending the term of whoever owns a shard, without becoming its owner.

The fence alone is not enough. An owner that must renew its producers fences back, and goes on if the last marker is its
own (`kafka/shard_log.py`). So the marker is committed again as it is, under our name: then it knows that it was
overtaken. Whoever takes over afterwards finds the same marker as without us.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from inorder.model.errors import FencedError
from inorder.ports.shard_log import ShardLog
from inorder.relay.marker import Marker

log = logging.getLogger("inorder.relay")

TRIES = 10
"""An owner may win its shard back meanwhile: in a new term, or because it renewed its producers in an old one."""


def end_term(open_log: Callable[[], ShardLog]) -> None:
    """Ends the shard's term that runs at the moment, and settles its open transaction."""

    def end() -> None:
        with closing(open_log()) as shard:
            marker = shard.take_over()
            shard.publish((), Marker().encode() if marker is None else marker)

    insist(end)


def insist(act: Callable[[], None]) -> None:
    """Does what needs a shard's fence, again as long as its owner wins the fence back."""
    for tries_left in reversed(range(TRIES)):
        try:
            act()
            return
        except FencedError as error:
            if not tries_left:
                raise
            log.info("relay.fenced_again: %s", error)
