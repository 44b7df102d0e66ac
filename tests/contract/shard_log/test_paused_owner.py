"""Without a fence a paused owner may repeat old records when it wakes up; first copies are in order all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inorder.kafka.admin import ensure_topic
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.readers import read_back
from inorder.kafka.shard_log import require_delivered
from tests.conftest import Eventually
from tests.contract.shard_log.making import row

ROOT = Path(__file__).parents[3]
PAUSED, LATER = 100, 120

OLD_OWNER = """
import sys
from inorder.kafka.idempotent_producer import IdempotentShardLog
from inorder.kafka.shard_log import Delivered
from tests.contract.shard_log.making import row

servers, topic, count = sys.argv[1:]
# So long between the first record, which goes alone, and the others.
log = IdempotentShardLog({"bootstrap.servers": servers, "linger.ms": 4000})
log.take_over()
while log.publish([row(topic, id) for id in range(1, int(count) + 1)], b"") != Delivered():
    continue
"""


@pytest.mark.full
def test_a_paused_owner_repeats_old_records_and_first_copies_stay_in_order(
    properties: dict[str, object], unique: str, eventually: Eventually
) -> None:
    def numbers() -> list[int]:
        return [int(record.value or b"") for record in read_back(properties, unique)]

    ensure_topic(properties, unique, 1)
    arguments = [str(properties["bootstrap.servers"]), unique, str(PAUSED)]
    with subprocess.Popen([sys.executable, "-c", OLD_OWNER, *arguments], cwd=ROOT) as old:
        try:
            eventually(lambda: numbers() == [1])
            os.kill(old.pid, signal.SIGSTOP)
            new = IdempotentShardLog(properties)
            new.take_over()
            require_delivered(new.publish([row(unique, id) for id in range(1, LATER + 1)], b""))
            new.close()
            before = numbers()
            os.kill(old.pid, signal.SIGCONT)
            assert old.wait(90) == 0
        finally:
            old.kill()
    assert before == [1, *range(1, LATER + 1)], "what was delivered and not purged is repeated"
    assert numbers() == before + list(range(2, PAUSED + 1)), "old records in their order, behind newer ones"
