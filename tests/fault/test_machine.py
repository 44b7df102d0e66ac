"""What a year brings to a machine: disks that fill up, and a new version of the code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from inorder.embedded import Kafka
from inorder.embedded.stack import Program
from tests.fault.fleet import Fleet, NewFleet, Way
from tests.injections import INJECTIONS

DRAIN = Way("drain", leadership="database")
MEGABYTES = 400
"""Of a disk: a server with its data, and some seconds of load."""
UPGRADE_FROM = os.environ.get("UPGRADE_FROM", "HEAD~25")
"""The commit of the older version."""


ROOT = Path(__file__).parents[2]


def tool(name: str) -> str:
    """A program of the system; tests that need one that is not there are skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own; only root can mount one."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=0755", "tmpfs", str(folder)]
    mounted = subprocess.run([tool("mount"), *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([tool("umount"), "--lazy", str(folder)], check=True)


@contextmanager
def filled(disk: Path, what: str) -> Iterator[None]:
    """Leaves no byte free while the block lasts."""
    filler = disk / "filler"
    INJECTIONS.note(f"disk full under {what}")
    with suppress(OSError), filler.open("wb", buffering=0) as file:  # until there is no space left
        while True:
            file.write(bytes(64 * 1024))
    try:
        yield
    finally:
        filler.unlink()


@pytest.mark.fault
@pytest.mark.timeout(600)
def test_a_full_disk_under_the_broker_costs_time_and_nothing_else(new_fleet: NewFleet, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, Kafka(disk / "kafka") as broker:
        fleet = new_fleet(DRAIN, bootstrap=broker.bootstrap)
        with fleet.load:
            fleet.start_staggered(2, 0.5)
            fleet.wait_for_progress()
            with filled(disk, "Kafka"):
                # It cannot append the batch of the rows that wait now.
                stuck = fleet.waiting()
                fleet.eventually(lambda: fleet.waiting() > stuck + 100, 120)
            broker.kill()
            broker.start()
            fleet.wait_for_progress()
        verdict = fleet.verdict()
    assert verdict.holds, verdict


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The code of an earlier commit."""
    archive, folder = tmp_path / "older.tar", tmp_path / "older"
    made = subprocess.run(
        [tool("git"), "-C", str(ROOT), "archive", "--output", str(archive), UPGRADE_FROM, "src"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"{UPGRADE_FROM} is not here: {made.stderr.strip()}")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder


def start_older(fleet: Fleet, older: Path) -> Program:
    """An instance of the older version, in the same group."""
    command = ["env", f"PYTHONPATH={older / 'src'}", sys.executable, "-m", "inorder.cli"]
    argv = [*command, "relay", "run", "--config", str(fleet.config)]
    instance = Program(f"{fleet.place.name}-older-{len(fleet.instances)}", argv, fleet.place.folder)
    instance.start()
    fleet.instances.append(instance)
    return instance


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", [DRAIN, Way("mark-purge", leadership="database", shards=2)], ids=str)
def test_instances_are_replaced_by_those_of_another_version_and_back(
    new_fleet: NewFleet, older: Path, way: Way
) -> None:
    fleet = new_fleet(way)
    with fleet.load:
        running = [start_older(fleet, older), start_older(fleet, older)]
        fleet.wait_for_progress()
        for start in (fleet.start_one, lambda: start_older(fleet, older)):
            for instance in list(running):
                INJECTIONS.note("instance replaced by another version")
                running.append(start())
                instance.stop()
                running.remove(instance)
                fleet.wait_for_progress()
    verdict = fleet.verdict()
    assert verdict.holds, verdict
