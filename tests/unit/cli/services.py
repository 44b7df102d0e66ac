"""Services that commands call, replaced for a test where the command finds them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

HOMES = {
    "Journals": "inorder.journal.service",
    "count_dead_letters": "inorder.pipeline.dead_letters_admin",
    "discard_dead_letters": "inorder.pipeline.dead_letters_admin",
    "discard_quarantined": "inorder.journal.service",
    "install_schema": "inorder.operate.schema",
    "journal_lag": "inorder.journal.service",
    "list_dead_letters": "inorder.pipeline.dead_letters_admin",
    "list_quarantine": "inorder.journal.service",
    "pipeline_status": "inorder.pipeline.status",
    "relay_status": "inorder.relay.status",
    "release_journal": "inorder.journal.service",
    "replay_outbox": "inorder.operate.outbox",
    "reshard": "inorder.relay.reshard",
    "retry_dead_letters": "inorder.pipeline.dead_letters_admin",
    "run_audit": "inorder.journal.audit.job",
    "run_upsert": "inorder.pipeline.job",
    "schema_sql": "inorder.operate.schema",
    "upsert_work": "inorder.pipeline.job",
}


def provide(monkeypatch: pytest.MonkeyPatch, **services: Any) -> None:
    """Commands import services when they run, so it is enough to replace them where they are defined."""
    for name, service in services.items():
        monkeypatch.setattr(import_module(HOMES[name]), name, service)
