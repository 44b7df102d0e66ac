"""What operators change of an installation, through any front end: topics, shards and columns; all of it logged.

The products do the work and keep what they promise: each change may be interrupted and requested again, and the entry
of one that was interrupted stays `started`. What is set aside is settled by `set_aside.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from inorder.operate.actions import ActionLog, Logged, Outcome
from inorder.operate.fields import readable
from inorder.operate.topics import TopicAdmin
from inorder.pipeline.growth import NewColumn
from inorder.relay.stores.ports import Registration
from inorder.topics.desired import TopicAction
from inorder.topics.failover import OnStep
from inorder.topics.generations import TopicState


class Changed(Protocol):
    """The products' own functions, which log nothing."""

    @property
    def topics(self) -> TopicAdmin: ...

    def migrate_topic(
        self, topic: str, *, to: str | None, once: bool, stop: threading.Event | None, reset: bool
    ) -> dict[str, int]: ...

    def reshard(self, *, shards: int | None, restored: bool) -> Registration: ...

    def replay_outbox(
        self, *, key: bytes | None, topic: str | None, since: datetime | None, dry_run: bool = False
    ) -> int: ...

    def apply_columns(self, chosen: Mapping[str, str], table: str | None) -> list[NewColumn]: ...


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """Changes an installation; returns what the product's function returns, and the entry of the log."""

    log: ActionLog
    products: Changed

    def apply_topics(self, reason: str = "") -> Logged[list[TopicAction]]:
        """Creates the topics of the settings that are missing, and sets what differs."""

        def describe(actions: list[TopicAction]) -> Outcome:
            return _outcome("planned", {f"{number}": str(each) for number, each in enumerate(actions, 1)})

        return self.log.record("topics apply", {}, reason, lambda: self.products.topics.apply(), describe)

    def fail_over(
        self,
        topic: str,
        reason: str = "",
        *,
        partitions: int | None = None,
        to: str | None = None,
        on_step: OnStep = lambda _step: None,
    ) -> Logged[TopicState]:
        """Switches a topic to its next generation, or completes an interrupted switch."""
        act = partial(self.products.topics.fail_over, topic, partitions=partitions, to=to, on_step=on_step)
        target = _given(topic=topic, partitions=partitions, to=to)
        return self.log.record("topics failover", target, reason, act, lambda state: _switched("switched", state))

    def cancel_fail_over(self, topic: str, reason: str = "") -> Logged[TopicState | None]:
        """Cancels a switch; None where the topic never had one."""

        def describe(state: TopicState | None) -> Outcome:
            return _outcome("never switched", {topic: ""}) if state is None else _switched("cancelled", state)

        act = partial(self.products.topics.cancel_fail_over, topic)
        return self.log.record("topics failover cancel", {"topic": topic}, reason, act, describe)

    def migrate(
        self,
        topic: str,
        reason: str = "",
        *,
        to: str | None = None,
        once: bool = True,
        reset: bool = False,
        stop: threading.Event | None = None,
    ) -> Logged[dict[str, int]]:
        """Copies later generations of a topic into one Kafka topic; returns records by the topics they come from."""

        def describe(copied: dict[str, int]) -> Outcome:
            fates = _outcome("copied", {name: f"{count:,} records" for name, count in copied.items()}).fates
            return Outcome({"copied": sum(copied.values())}, fates)

        act = partial(self.products.migrate_topic, topic, to=to, once=once, stop=stop, reset=reset)
        return self.log.record("topics migrate", _given(topic=topic, to=to, reset=reset), reason, act, describe)

    def reshard(self, reason: str = "", *, shards: int | None = None, restored: bool = False) -> Logged[Registration]:
        """Makes the group, strategy and shards of the settings, or so many `shards`, what is registered."""

        def describe(found: Registration) -> Outcome:
            detail = f"{found.shards} shards, strategy {found.strategy}, group {found.group}, epoch {found.epoch}"
            return _outcome("registered", {found.outbox: detail})

        act = partial(self.products.reshard, shards=shards, restored=restored)
        return self.log.record("relay reshard", _given(shards=shards, restored=restored), reason, act, describe)

    def replay_outbox(
        self,
        reason: str = "",
        *,
        key: bytes | None = None,
        topic: str | None = None,
        since: datetime | None = None,
    ) -> Logged[int]:
        """Puts copies of published rows into the outbox, in their order; returns how many."""
        act = partial(self.products.replay_outbox, key=key, topic=topic, since=since)
        target = _given(key=readable(key), topic=topic, since=since)
        return self.log.record("outbox replay", target, reason, act, lambda rows: Outcome({"copied": rows}))

    def apply_columns(
        self, chosen: Mapping[str, str], table: str | None = None, reason: str = ""
    ) -> Logged[list[NewColumn]]:
        """Adds nullable columns to a table of the job `upsert`."""

        def describe(added: list[NewColumn]) -> Outcome:
            return _outcome("added", {f"{each.table}.{each.field}": each.type or "" for each in added})

        target = _given(table=table, fields=dict(chosen))
        act: Callable[[], list[NewColumn]] = partial(self.products.apply_columns, chosen, table)
        return self.log.record("pipeline apply", target, reason, act, describe)


def _given(**named: Any) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value not in (None, False)}


def _switched(fate: str, state: TopicState) -> Outcome:
    current = state.current
    detail = f"generation {current.number} in {current.topic}, {current.partitions} partitions, {state.phase}"
    return _outcome(fate, {state.topic: detail})


def _outcome(fate: str, details: Mapping[str, str]) -> Outcome:
    """The same fate for each of these, by name."""
    fates = [{"id": name, "fate": fate, "detail": detail} for name, detail in details.items()]
    return Outcome({fate: len(fates)}, fates)
