"""The only place where ports meet adapters: settings in, running parts out."""

from inorder.wiring.outbox import replay_outbox
from inorder.wiring.publisher import Publisher
from inorder.wiring.relay import Relay, RelayState
from inorder.wiring.relay_state import exceeded_rows, relay_status, settle_exceeded
from inorder.wiring.resharding import reshard
from inorder.wiring.schema import install_schema, schema_sql
from inorder.wiring.upsert import run_upsert, upsert_mapping

__all__ = [
    "Publisher",
    "Relay",
    "RelayState",
    "exceeded_rows",
    "install_schema",
    "relay_status",
    "replay_outbox",
    "reshard",
    "run_upsert",
    "schema_sql",
    "settle_exceeded",
    "upsert_mapping",
]
