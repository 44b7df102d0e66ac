"""Announcing never holds a replicator up, whatever is the matter with Kafka."""

from __future__ import annotations

import logging
import pickle
import time

import pytest

from inorder.journal.stores.kafka_notices import CLOSE_SECONDS, OffsetAnnouncer, OffsetAnnouncers
from tests.conftest import Eventually

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "client.id": "test"}


def test_it_travels_to_other_processes_and_equal_ones_are_equal() -> None:
    announcers = OffsetAnnouncers.of(NOWHERE, "notices", "9f")
    same = OffsetAnnouncers.of(dict(reversed(NOWHERE.items())), "notices", "9f")
    assert pickle.loads(pickle.dumps(announcers)) == announcers == same  # noqa: S301 - our own
    assert len({announcers, same, OffsetAnnouncers.of(NOWHERE, "notices", "a0")}) == 2


def test_it_does_not_show_the_properties() -> None:
    assert "hidden" not in repr(OffsetAnnouncers.of({"sasl.password": "hidden"}, "notices", "9f"))


def test_nothing_connects_before_there_is_something_to_tell() -> None:
    announcer = OffsetAnnouncers.of(NOWHERE, "notices", "9f")()
    announcer.close()
    announcer.close()


def test_without_a_broker_nobody_waits_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("inorder.kafka.admin.SECONDS", 0.2)
    announcer = OffsetAnnouncer(NOWHERE, "notices", "9f")

    def said() -> list[tuple[str, str]]:
        ours = [record for record in caplog.records if record.name == "inorder.journal"]
        return [(record.getMessage(), record.__dict__["topic"]) for record in ours]

    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        for offset in range(10_000):
            announcer.announce("journal", offset % 8, offset)
        assert time.monotonic() - began < 5
        eventually(said)
        announcer.announce("journal", 0, 10_000)
        began = time.monotonic()
        announcer.close()
    assert time.monotonic() - began < CLOSE_SECONDS + 4
    assert said() == [("journal.offsets_not_announced", "notices")]
