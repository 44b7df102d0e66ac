"""The job `expire` on real Kafka and PostgreSQL: first a dry run, then the purges, at its rate."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import inorder
from inorder.app import App
from inorder.journal.jobs import Expired
from inorder.journal.stores.postgres import PostgresJournal
from inorder.kafka.admin import ensure_topic
from inorder.model.journal import Event, Key
from tests.conftest import Eventually
from tests.integration.journal.replicator import Replicator


def test_expired_journals_are_purged_and_the_others_stay(
    kafka_bootstrap: str, postgres_url: str, unique: str, eventually: Eventually
) -> None:
    properties: dict[str, object] = {"bootstrap.servers": kafka_bootstrap}
    ensure_topic({"bootstrap.servers": kafka_bootstrap}, unique, 1)
    settings = inorder.Settings.load(
        None,
        kafka=properties,
        database={"url": postgres_url},
        journal={"topic_prefixes": [unique], "expire_per_second": 1000},
    )
    store = PostgresJournal(postgres_url)
    store.install()
    expired: list[Expired] = []

    def run(*, dry_run: bool) -> dict[str, object]:
        later = datetime.now(UTC).date() + timedelta(days=9)
        with App(settings) as app:
            return app.run_expire(
                once=True, stop=threading.Event(), dry_run=dry_run, on_expired=expired.append, today=lambda: later
            )

    with inorder.Journals(settings) as journals, Replicator(properties, postgres_url, unique):
        for id, days in (("short", 1), ("long", 30), ("endless", None)):
            after = None if days is None else timedelta(days=days)
            journals.journal(Key(id, unique)).append([Event(1)], expire_after=after)
        eventually(lambda: len(list(store.ids(unique))) == 3)
        assert (run(dry_run=True), run(dry_run=False)) == ({"found": 1, "purged": 0}, {"found": 1, "purged": 1})
        assert expired == [Expired(Key("short", unique), is_purged) for is_purged in (False, True)]
        eventually(lambda: sorted(store.ids(unique)) == ["endless", "long"])
    store.close()
