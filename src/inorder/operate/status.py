"""The state of everything, part by part: what the status commands of the parts print, in one look."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

from inorder.database import sql
from inorder.database.database import Database
from inorder.journal.service import JournalAdmin
from inorder.kafka.admin import Cluster
from inorder.model.errors import InorderError, UnreachableError
from inorder.operate.fields import group_fields, lag_fields
from inorder.operate.running import OwnerTimes
from inorder.operate.topics import TopicAdmin, list_topics
from inorder.pipeline.dead_letters_admin import DeadLetterAdmin
from inorder.relay.status import RelayAdmin
from inorder.topics.pauses import Pause

Part = dict[str, Any]

PART_SECONDS: Final = 15.0
"""How long one part may take, beside the others."""


def read_together(parts: Mapping[str, Callable[[], Part]], seconds: float = PART_SECONDS) -> dict[str, Part]:
    """All parts at once; one that cannot be read, or not within `seconds`, has its `error` and nothing else."""
    reading: dict[str, Future[Part]] = {name: Future() for name in parts}

    def read(name: str) -> None:
        try:
            reading[name].set_result(read_part(parts[name]))
        except Exception as error:  # noqa: BLE001 - raised by the caller's `result`
            reading[name].set_exception(error)

    for name in parts:
        # A daemon: the command ends without a server that never answers.
        threading.Thread(target=read, args=(name,), name=f"inorder-status-{name}", daemon=True).start()
    wait(reading.values(), timeout=seconds)
    late: Part = {"error": f"timed out: no answer within {seconds:g} s.", "exit_code": UnreachableError.exit_code}
    return {name: found.result() if found.done() else dict(late) for name, found in reading.items()}


def read_part(part: Callable[[], Part]) -> Part:
    """One part, or its error."""
    try:
        return part()
    except InorderError as error:
        return {"error": error.message, "exit_code": error.exit_code}


def verdict(parts: Mapping[str, Part]) -> str:
    """All parts in one line: what cannot be read, else what waits for somebody, else `ok`."""
    failed = defaultdict[str, list[str]](list)
    for name, fields in parts.items():
        if "error" in fields:
            failed[fields["error"]].append(name)
    if failed:
        return " ".join(f"{', '.join(names)} cannot be read: {error}" for error, names in failed.items())
    waiting = [
        f"{count} {words}"
        for fields in parts.values()
        for field, words in _NEED_SOMEBODY.items()
        if (count := _count(fields.get(field)))
    ]
    return f"needs attention: {', '.join(waiting)}" if waiting else "ok"


_NEED_SOMEBODY = {
    "paused": "paused",
    "exceeded": "exceeded records",
    "dead_letters": "dead letters",
    "parked": "parked journals",
}


def _count(found: object) -> int:
    return found if isinstance(found, int) else len(found) if isinstance(found, Mapping) else 0


_STATEMENTS = sql.load("inorder.operate", "sql/status.sql")


def database_part(database: Database) -> Part:
    """Whether the database answers."""
    database.execute(_STATEMENTS["answers"])
    return {"dialect": database.dialect}


def kafka_part(cluster: Cluster) -> Part:
    """Whether the cluster answers, and its brokers."""
    found = cluster.info()
    return {"cluster_id": found.cluster_id, "brokers": list(found.brokers)}


def relay_part(relay: RelayAdmin, *, asks_kafka: bool = True, times: OwnerTimes | None = None) -> Part:
    """The outbox and its relay; without `asks_kafka` from the database alone. `times` remembers earlier owners."""
    groups = relay.exceeded_groups()
    exceeded = {"exceeded": sum(each.count for each in groups), "exceeded_groups": group_fields(groups)}
    found = relay.status(asks_kafka=asks_kafka)
    if "owners" in found:
        found["shard_owners"] = (times or OwnerTimes()).note(found["owners"], found["terms"])
    return {**found, **exceeded}


def topics_part(
    topics: TopicAdmin, pauses: Sequence[Pause], uses: Mapping[str, Collection[str]], partitions: Mapping[str, int]
) -> Part:
    """Every topic that something uses, those that have several generations, and what is paused."""
    switched = topics.status()
    behind = {each["topic"]: each["behind"] for each in switched}
    paused = {f"{each.kind} {each.name}": str(each) for each in pauses}
    listed = list_topics(uses, switched, partitions, pauses)
    return {"switched": len(switched), "behind": behind, "paused": paused, "listed": listed, "generations": switched}


def pipeline_part(status: Part, letters: DeadLetterAdmin) -> Part:
    """The tables of the job `upsert`."""
    groups = letters.groups()
    count = sum(each.count for each in groups)
    # Behind the last record of each partition: what has come to Kafka so far. A topic that was deleted has no end.
    ends = sum(each["next_offset"] + (each["behind"] or 0) for each in status["partitions"])
    return {**status, "ends": ends, "dead_letters": count, "dead_letter_groups": group_fields(groups)}


def journal_part(journal: JournalAdmin) -> Part:
    """The journals and their store."""
    rows = journal.lag()
    if not rows:
        return {"topics": 0, "behind": 0}
    return {
        "topics": len({row.topic for row in rows}),
        "behind": sum(row.behind for row in rows),
        "ends": sum(row.end for row in rows),
        "replicated": sum(row.end - row.behind for row in rows),
        "parked": len({each.key for each in journal.quarantined()}),
        "lag": [lag_fields(row) for row in rows],
    }


_LISTS = (
    "exceeded_groups",
    "shard_owners",
    "served",
    "listed",
    "jobs",
    "generations",
    "partitions",
    "dead_letter_groups",
    "lag",
)


def short(part: Part) -> Part:
    """A part without its lists, as `inorder status` prints it."""
    return {name: value for name, value in part.items() if name not in _LISTS}
