"""The only place where ports meet adapters: settings in, running parts out."""

from inorder.wiring.audit import run_audit
from inorder.wiring.checks import message_checks
from inorder.wiring.dead_letters import (
    count_dead_letters,
    discard_dead_letters,
    list_dead_letters,
    retry_dead_letters,
)
from inorder.wiring.expire import run_expire
from inorder.wiring.following import follow_key
from inorder.wiring.generations_status import generations_status
from inorder.wiring.journal import AsyncJournals, Journals, journal_lag
from inorder.wiring.migrate import copies_behind, migrate_topic, run_migrate
from inorder.wiring.outbox import replay_outbox
from inorder.wiring.pipeline_status import pipeline_status
from inorder.wiring.publisher import Publisher
from inorder.wiring.quarantine import discard_quarantined, list_quarantine, release_journal
from inorder.wiring.relay import Relay, RelayState
from inorder.wiring.relay_on_spark import run_relay
from inorder.wiring.relay_state import exceeded_rows, relay_status, settle_exceeded
from inorder.wiring.replicate import journal_topics, run_replicate
from inorder.wiring.resharding import reshard
from inorder.wiring.schema import install_schema, schema_sql
from inorder.wiring.status import whole_status
from inorder.wiring.topic_generations import (
    apply_topics,
    cancel_fail_over,
    fail_over,
    plan_topics,
)
from inorder.wiring.upsert import run_upsert, table_mappings, upsert_work

__all__ = [
    "AsyncJournals",
    "Journals",
    "Publisher",
    "Relay",
    "RelayState",
    "apply_topics",
    "cancel_fail_over",
    "copies_behind",
    "count_dead_letters",
    "discard_dead_letters",
    "discard_quarantined",
    "exceeded_rows",
    "fail_over",
    "follow_key",
    "generations_status",
    "install_schema",
    "journal_lag",
    "journal_topics",
    "list_dead_letters",
    "list_quarantine",
    "message_checks",
    "migrate_topic",
    "pipeline_status",
    "plan_topics",
    "relay_status",
    "release_journal",
    "replay_outbox",
    "reshard",
    "retry_dead_letters",
    "run_audit",
    "run_expire",
    "run_migrate",
    "run_relay",
    "run_replicate",
    "run_upsert",
    "schema_sql",
    "settle_exceeded",
    "table_mappings",
    "upsert_work",
    "whole_status",
]
