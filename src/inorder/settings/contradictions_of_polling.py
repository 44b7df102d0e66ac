"""Contradictions of the strategy `polling`, of leases and of the ways to the database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from inorder.settings.lease import MARGIN_PARTS, LeaseSettings
from inorder.settings.relay import RelaySettings
from inorder.settings.url import SecretUrl

if TYPE_CHECKING:
    from inorder.settings.root import Settings


def against_polling(relay: RelaySettings) -> Iterator[str]:
    """The layout, the shards and the tables that the strategy can work with."""
    if relay.strategy != "polling":
        if relay.layout == "trendyol" and relay.strategy == "mark-purge":
            yield (
                "relay.layout = 'trendyol' has no column for the leader id that relay.strategy = 'mark-purge' writes; "
                "use relay.strategy = 'polling' or 'drain'."
            )
        return
    if relay.layout != "trendyol":
        yield (
            f"relay.strategy = 'polling' contradicts relay.layout = {relay.layout!r}: "
            "it needs the offset and the missing events of the layout 'trendyol'."
        )
    if relay.shards != 1:
        yield (
            f"relay.shards = {relay.shards} contradicts relay.strategy = 'polling', "
            "which has one offset and so one shard."
        )
    yield from _tables(relay)


def _tables(relay: RelaySettings) -> Iterator[str]:
    schema = relay.table.rpartition(".")[0]
    names = {"relay.table": relay.table} | {
        f"relay.polling.{field}": getattr(relay.polling, field)
        for field in ("missing_table", "exceeded_table", "offset_table")
    }
    for (one, name), (other, same) in combinations(names.items(), 2):
        if _whole(name, schema) == _whole(same, schema):
            yield f"{one} and {other} are both {same!r}; each needs a table of its own."


def _whole(table: str, schema: str) -> tuple[str, str]:
    before, _, name = table.rpartition(".")
    return before or schema, name


def against_lease(lease: LeaseSettings) -> Iterator[str]:
    """An owner must be able to extend its lease, and to stop, before it ends."""
    usable = lease.lifetime_ms - lease.margin_ms
    if lease.race_interval_ms >= usable:
        yield (
            f"relay.lease.lifetime_ms = {lease.lifetime_ms} is too short for "
            f"relay.lease.race_interval_ms = {lease.race_interval_ms}: an owner stops a {MARGIN_PARTS}th of the "
            f"lifetime before its end, so it must extend its lease more often than every {usable:.0f} ms."
        )
    if lease.check_interval_ms > lease.margin_ms:
        yield (
            f"relay.lease.check_interval_ms = {lease.check_interval_ms} is longer than a {MARGIN_PARTS}th of "
            f"relay.lease.lifetime_ms = {lease.lifetime_ms}: an owner would notice too late that it must stop."
        )


def against_database(settings: Settings) -> Iterator[str]:
    """What stands beside `database.url` and must fit it."""
    database, strategy = settings.database, settings.relay.strategy
    scheme = _scheme(database.url)
    if database.read_only_url is not None:
        if strategy != "polling":
            yield f"database.read_only_url is of no use with relay.strategy = {strategy!r}: only 'polling' reads there."
        if scheme != _scheme(database.read_only_url):
            yield (
                f"database.read_only_url ({_scheme(database.read_only_url)}) and database.url ({scheme}) "
                "must be the same kind of database."
            )
    if database.credentials_file is not None and scheme in ("not set", "sqlite"):
        yield f"database.credentials_file needs a database.url of a server, and that is {scheme}."


def _scheme(url: SecretUrl | None) -> str:
    return "not set" if url is None else url.get_secret_value().partition("://")[0]
