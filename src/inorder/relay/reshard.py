"""Changes the set-up of a relay: its number of shards, its group, its strategy.

Instances that divide a table into different numbers of shards would publish the same rows under different fences, and
no fence would stop the other. Therefore the set-up is registered in the outbox's database. A change has three steps:

    1. begin    the registration says `changing`, and into what      (committed)
    2. settle   each old shard: fence its owner, purge what its marker names, leave a marker without rows
    3. finish   the registration says what it is now                 (committed)

What is authoritative: **the registration**. An instance reads it at the start of each term, *behind its own fence*
(`LoopOptions.confirm`), and publishes nothing if it differs.

Why no instance publishes by the old set-up after step 2: an old instance fenced the shard either before step 2, and
then step 2 fenced it; or after, and then it reads the registration after step 1 was committed, and stops. No instance
publishes by the new one before step 3, because it is not registered.

Order: a row of a key is either published and purged when step 2 ends, or it is not published at all. So the new owner
of the key begins where the old one stopped.

| what                                        | then                                                                  |
|---|---|
| the command dies in between                 | the registration says `changing`, no relay works; run again to resume |
| an old instance keeps running               | it is fenced, and ends with a configuration error                     |
| an old instance fences us while we settle   | it ends, behind its fence; we fence the shard again                   |
| a shard's fence cannot be obtained          | the command fails and may be run again                                |
| delivery is at-least-once: there is no      | running instances read the registration once a second; the command    |
| fence                                       | waits longer than that. One that is paused meanwhile may repeat rows  |
| the database was restored from a backup     | the markers name other rows: `restored` purges nothing by them        |
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from inorder.database.database import Database
from inorder.kafka.shard_log import ShardLog, require_delivered
from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Shard
from inorder.relay.marker import Marker, MarkerCodec, insist, split
from inorder.relay.parts import RelayParts
from inorder.relay.polling_rules import MarkedRows, recover
from inorder.relay.purge_queue import TakeOver, is_row_of_decision, purge_marker, read_some
from inorder.relay.stores.polling import SqlPollingStore
from inorder.relay.stores.ports import ExceededStore, PurgingStore, Registration, Registry, Setup
from inorder.relay.term import after_take_over
from inorder.settings.relay import RelaySettings

log = logging.getLogger("inorder.relay")

CONFIRM_HINT = "Give all instances the same settings, or run `inorder relay reshard` to change what is registered."


def confirm(registry: Registry, wanted: Setup) -> None:
    """Registers `wanted` if nothing is registered; raises if something else is."""
    refuse_other(registry.register(wanted), wanted)


def refuse_other(found: Registration, wanted: Setup) -> None:
    """Raises unless the registration is `wanted` and not being changed."""
    if found.target is not None:
        raise ConfigurationError(
            f"The relay of table {found.outbox!r} is being changed to {found.target}; it was {found.setup}.",
            hint="Run `inorder relay reshard` with that target again to finish the change.",
        )
    if found.setup != wanted:
        differing = "; ".join(_differences(found.setup, wanted))
        raise ConfigurationError(f"The relay of table {found.outbox!r}: {differing}.", hint=CONFIRM_HINT)


def _differences(found: Setup, wanted: Setup) -> list[str]:
    return [
        f"relay.{name} = {getattr(wanted, name)!r}, but {getattr(found, name)!r} is registered"
        for name in ("group", "strategy", "shards")
        if getattr(found, name) != getattr(wanted, name)
    ]


class Resharding:
    """Changes a registration. `log_of` opens the log of one shard of a set-up.

    `purge` removes the rows that a marker names, and returns what it found.
    """

    def __init__(
        self,
        registry: Registry,
        exceeded: ExceededStore,
        log_of: Callable[[Setup, int], ShardLog],
        purge: Callable[[Marker], TakeOver],
        markers_of: Callable[[Setup], MarkerCodec],
    ) -> None:
        self._registry = registry
        self._exceeded = exceeded
        self._log_of = log_of
        self._purge = purge
        self._markers_of = markers_of

    def run(self, wanted: Setup, *, restored: bool = False, wait: Callable[[], object] = lambda: None) -> Registration:
        """Makes `wanted` the registered set-up; `wait` gives instances without a fence time to notice."""
        before = self._registry.register(wanted)
        if before.target is None and before.setup == wanted and not restored:
            return before
        changing = self._registry.begin_change(wanted)
        wait()
        for shard in range(changing.shards):
            self._settle(changing.setup, shard, restored=restored)
        return self._registry.finish_change()

    def _settle(self, setup: Setup, shard: int, *, restored: bool) -> None:
        insist(partial(self._settle_once, setup, shard, restored=restored))
        log.info("relay.shard_settled", extra={"group": setup.group, "shard": shard})

    def _settle_once(self, setup: Setup, shard: int, *, restored: bool) -> None:
        shard_log, markers = self._log_of(setup, shard), self._markers_of(setup)
        try:
            marker = markers.decode(shard_log.take_over())
            settled = Marker() if restored else self._carry_out(marker)
            require_delivered(shard_log.publish((), markers.encode(settled)))
        finally:
            shard_log.close()

    def _carry_out(self, marker: Marker) -> Marker:
        """Does what a new owner would; returns a marker that names no row, except those that the database lost."""
        found = self._purge(marker)
        if marker.exceeding is not None and found.exceeds:
            self._exceeded.exceed(marker.exceeding)
        return after_take_over(marker, found)


NOTICE_SECONDS = 5.0
"""Instances without a fence read the registration once a second; this is longer."""


def reshard(parts: RelayParts, database: Database, *, restored: bool = False) -> Registration:
    """Registers the group, strategy and shards of the settings, whatever was registered before."""
    registry, exceeded = parts.registry(database), parts.exceeded_store(database)
    found = registry.read()
    polled = parts.polling_store(database) if found is not None and found.strategy == "polling" else None
    if polled is not None and parts.relay.strategy != "polling":
        _refuse_kept_rows(parts.relay, polled)
    with closing(parts.outbox_store(Shard())) as store:
        purge = partial(purge_marker, store) if polled is None else partial(_settle_published, polled, store)
        markers_of = partial(parts.marker_codec, is_restored=restored)
        change = Resharding(registry, exceeded, parts.shard_log, purge, markers_of)
        return change.run(parts.setup, restored=restored, wait=partial(_wait, parts.relay))


def _settle_published(store: SqlPollingStore, rows: PurgingStore, marker: Marker) -> TakeOver:
    """Settles what a polling relay published; its rows stay."""
    origin, proofs, known = rows.origin(), marker.rows(), None
    replaced = list[int]()
    if proofs is not None:
        ours, left = list[int](), deque(proofs)
        while left:
            proven, others = split(read_some(rows, left), proofs)
            ours += proven
            replaced += others
        known = MarkedRows(frozenset(ours), frozenset(replaced))
    settlement = recover(store.offset(), replace(marker, floor=0), known)
    if settlement is not None:
        store.settle(settlement)
    return TakeOver(replaced=tuple(replaced), origin=origin, exceeds=is_row_of_decision(rows, marker))


def _refuse_kept_rows(relay: RelaySettings, store: SqlPollingStore) -> None:
    """Other strategies publish every row that they find, and `polling` leaves all that it published."""
    if store.keeps_published():
        sides = relay.polling.side_tables.beside(relay.table)
        raise ConfigurationError(
            f"Table {relay.table!r} holds rows that relay.strategy = 'polling' has published; "
            f"{relay.strategy!r} would publish them again.",
            hint=(
                f"Stop the relay, delete the rows up to the offset in {sides.offset} whose ids are neither in "
                f"{sides.missing} nor in {sides.exceeded}, then run `inorder relay reshard` again."
            ),
        )


def _wait(relay: RelaySettings) -> None:
    if relay.delivery == "at-least-once":
        threading.Event().wait(NOTICE_SECONDS)
