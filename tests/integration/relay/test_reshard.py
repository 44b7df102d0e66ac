"""A relay's set-up is changed under load: nothing is lost, doubled or reordered, and who does not know is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import inorder
from inorder.embedded.postgres import Postgres
from inorder.kafka.readers import read_back
from inorder.model.errors import ConfigurationError
from tests.conftest import Eventually
from tests.integration.relay.commands import Commands
from tests.integration.relay.conftest import Bench
from tests.integration.relay.writing import Writers
from tests.operating import install_schema, reshard
from tests.selection import few


def assert_refused(relay: inorder.Relay, old: int, new: int) -> None:
    """The instance ends, and says what it was set to and what is, or is about to be, registered."""
    with pytest.raises(ConfigurationError) as caught:
        relay.wait(60)
    assert "The relay of table 'outbox'" in caught.value.message
    steady = rf"relay\.shards = {old}, but {new} is registered"
    changing = rf"being changed to .*shards {new}; it was .*shards {old}"
    assert re.search(f"{steady}|{changing}", caught.value.message)
    assert "inorder relay reshard" in caught.value.hint


@pytest.mark.parametrize("leadership", few(["kafka", "database"], "database"))
def test_the_number_of_shards_is_changed_there_and_back_under_load(
    bench: Bench, unique: str, eventually: Eventually, tmp_path: Path, leadership: str
) -> None:
    one, three = (bench.settings(leadership=leadership, shards=shards) for shards in (1, 3))
    with Writers(bench, unique) as writers:
        with inorder.Relay(one) as first:
            eventually(lambda: first.published > 50)
            changed = reshard(three)
            assert (changed.shards, changed.epoch, changed.target) == (3, 2, None)
            assert_refused(first, 1, 3)
        commands = Commands(bench, tmp_path, leadership=leadership, shards=3)
        with commands.running("relay", "run") as second:
            backlog = bench.count()
            eventually(lambda: bench.count() < backlog / 2)
            ran = commands.run("relay", "reshard", "--shards", "1", "--json")
            assert ran.returncode == 0, ran.stderr
            assert json.loads(ran.stdout)["shards"] == 1
            assert "Now set relay.shards = 1 in the settings of every instance." in ran.stderr
            said = second.communicate(timeout=120)[1]
            assert second.returncode == 3
            assert "error CONFIG-001: The relay of table 'outbox'" in said
        with inorder.Relay(one) as third:
            eventually(lambda: third.published > 50)
            writers.stop()
            eventually(lambda: bench.count() == 0)
    verdict = writers.verdict()
    assert verdict.holds, verdict


@pytest.mark.full
def test_instances_that_no_fence_stops_notice_the_change_and_nothing_is_lost_or_reordered(
    bench: Bench, unique: str, eventually: Eventually
) -> None:
    one, two = (bench.settings(leadership="database", delivery="at-least-once", shards=shards) for shards in (1, 2))
    with Writers(bench, unique) as writers:
        with inorder.Relay(one) as first:
            eventually(lambda: first.published > 50)
            reshard(two)
            assert_refused(first, 1, 2)
        with inorder.Relay(two) as second:
            eventually(lambda: second.published > 50)
            writers.stop()
            eventually(lambda: bench.count() == 0)
    verdict = writers.verdict()
    assert replace(verdict, duplicated=0).holds, verdict


@pytest.mark.full
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"shards": 2}, "relay.shards = 2, but 1 is registered"),
        ({"strategy": "mark-purge"}, "relay.strategy = 'mark-purge', but 'drain' is registered"),
        ({"group": "another"}, "relay.group = 'another', but '{group}' is registered"),
    ],
    ids=["shards", "strategy", "group"],
)
def test_an_instance_that_disagrees_is_refused_by_name_and_disturbs_nobody(
    bench: Bench, unique: str, eventually: Eventually, other: dict[str, Any], words: str
) -> None:
    with inorder.Relay(bench.settings(leadership="database")) as relay:
        eventually(lambda: relay.is_leader)
        # With a lease of its own it does lead, and is refused all the same.
        with inorder.Relay(bench.settings(leadership="kafka", **other)) as stranger:
            with pytest.raises(ConfigurationError) as caught:
                stranger.wait(60)
            assert words.format(group=bench.group) in caught.value.message
            assert "inorder relay reshard" in caught.value.hint
            assert stranger.published == 0
        bench.publish(inorder.Message(unique, key="k", value="1"))
        eventually(lambda: bench.count() == 0)
    assert [record.value for record in read_back(bench.properties, unique)] == [b"1"]


@pytest.mark.full
def test_a_restored_database_keeps_its_rows_though_old_markers_name_their_ids(
    bench: Bench, unique: str, eventually: Eventually, tmp_path: Path
) -> None:
    settings = bench.settings(leadership="none")
    with inorder.Relay(settings):
        bench.publish(*(inorder.Message(unique, key="k", value=f"old {n}") for n in range(5)))
        eventually(lambda: bench.count() == 0)
    with bench.connect() as connection:
        connection.execute("TRUNCATE outbox RESTART IDENTITY")
    bench.publish(*(inorder.Message(unique, key="k", value=f"new {n}") for n in range(5)))
    ran = Commands(bench, tmp_path, leadership="none").run("relay", "reshard", "--restored")
    assert ran.returncode == 0, ran.stderr
    with inorder.Relay(settings):
        eventually(lambda: bench.count() == 0)
    values = [record.value for record in read_back(bench.properties, unique)]
    assert values == [f"{age} {n}".encode() for age in ("old", "new") for n in range(5)]


@pytest.mark.full
def test_a_relay_of_another_outbox_with_the_same_group_is_refused_and_its_rows_stay(
    bench: Bench, postgres: Postgres, unique: str, eventually: Eventually
) -> None:
    bench.publish(*(inorder.Message(unique, key="k", value=value) for value in "abc"))
    with inorder.Relay(bench.settings(leadership="none")):
        eventually(lambda: bench.count() == 0)
    other = Bench(postgres.create_database(f"{unique}_other"), bench.bootstrap, bench.group)
    settings = other.settings(leadership="none")
    try:
        install_schema(settings, "native")
        other.publish(*(inorder.Message(unique, key="k", value=value) for value in "xyz"))
        with (
            pytest.raises(ConfigurationError, match="are those of another outbox"),
            inorder.Relay(settings) as relay,
        ):
            relay.wait(60)
        assert other.count() == 3, "the ids in the marker are not theirs"
        reshard(settings, restored=True)
        with inorder.Relay(settings):
            eventually(lambda: other.count() == 0)
    finally:
        postgres.drop_database(f"{unique}_other")

    def published() -> list[bytes | None]:
        return [record.value for record in read_back(bench.properties, unique)]

    eventually(lambda: published() == [b"a", b"b", b"c", b"x", b"y", b"z"])
