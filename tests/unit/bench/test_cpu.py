"""Processor time and memory are counted for a process with all that it started, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from inorder.bench.figures import Process, cpu_seconds, memory_megabytes, tree_pages, tree_seconds

STAT = "4242 (a ) (name) S 17 4242 4242 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 99 1000 200"


def test_a_line_of_the_table_is_read_past_any_name() -> None:
    assert Process.parse(STAT, ticks_per_second=100) == Process(4242, 17, 2.5, "a ) (name", 200)


def test_descendants_count_and_strangers_do_not() -> None:
    table = [Process(1, 0, 100.0), Process(5, 1, 1.0), Process(6, 5, 2.0), Process(7, 6, 4.0), Process(8, 1, 50.0)]
    assert tree_seconds(table, root=5) == 7.0
    assert tree_seconds(table, root=99) == 0.0


def test_no_process_has_no_time_and_no_memory() -> None:
    assert cpu_seconds(None) is None
    assert memory_megabytes(None) == {}


def test_memory_is_that_of_the_driver_its_jvm_and_the_workers_of_the_jvm() -> None:
    table = [
        Process(5, 1, 0.0, "python", 1),
        Process(6, 5, 0.0, "java", 20),
        Process(7, 6, 0.0, "python3", 300),
        Process(8, 7, 0.0, "python3", 4000),
        Process(9, 1, 0.0, "java", 50_000),
    ]
    assert tree_pages(table, root=5) == {"driver": 1, "jvm": 20, "tasks": 4300}
    assert memory_megabytes(os.getpid())["driver"] > 1


def test_work_of_a_child_is_seen_while_it_runs() -> None:
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint('worked', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "worked\n"
        used, ours = cpu_seconds(child.pid), cpu_seconds(os.getpid())
        child.communicate("go\n")
    assert used is not None
    assert ours is not None
    assert 0.25 <= used <= ours
