"""Looks at the machine and the servers, and says what is not as inorder needs it; changes nothing."""

from __future__ import annotations

from inorder.doctor.check import Check, exit_code
from inorder.doctor.database import examine_database
from inorder.doctor.journal import examine_journal
from inorder.doctor.kafka import examine_kafka
from inorder.doctor.machine import examine_machine
from inorder.doctor.redis import examine_redis
from inorder.settings import Settings

__all__ = ["Check", "examine", "exit_code"]


def examine(settings: Settings) -> list[Check]:
    """Every check, each bounded in time; none of them raises."""
    return [
        *examine_machine(),
        *examine_database(settings),
        *examine_kafka(settings),
        *examine_redis(settings),
        *examine_journal(settings),
    ]
