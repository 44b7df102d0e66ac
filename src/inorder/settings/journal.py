"""[journal]: events on Kafka topics, and the store that they are replicated to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from inorder.model.errors import ConfigurationError
from inorder.settings.section import SecretUrl, Section, TopicName, TopicNameOrNone, Whole, check_scheme, matching
from inorder.settings.servers import DATABASE_SCHEMES, DatabaseSettings

SCHEMES = ("postgresql+psycopg", "cassandra")

ReadLevel = Literal["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"]
WriteLevel = Literal["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"]
_OVERLAPPING = {
    ("QUORUM", "QUORUM"),
    ("QUORUM", "EACH_QUORUM"),
    ("LOCAL_QUORUM", "LOCAL_QUORUM"),
    ("LOCAL_QUORUM", "EACH_QUORUM"),
}
"""Reads and writes that have a replica in common whatever the replication factor is; ALL has one with each."""
# Shorter than the 48 letters that Cassandra allows, since the names of indexes begin with that of their table.
CassandraTable = Annotated[str, matching(r"[a-z][a-z0-9_]{0,31}", "lower-case letters, digits and _, at most 32")]
_DROPPED = frozenset({"metadata", "pointer"})
"""Tables of old versions of Kafka Journal, which migrations drop."""
_FACTOR = "[1-9][0-9]{0,2}"
Replicas = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    matching(
        rf"{_FACTOR}|[\w.-]+:{_FACTOR}(,[\w.-]+:{_FACTOR})*",
        "a number, or the number for each data centre, such as dc1:3,dc2:3",
    ),
]
_OLD_NAMES = {"dc": "local_dc"}
"""Of options in a URL."""


class CassandraSettings(Section):
    """A store in Cassandra. Each option may also be in the query of the URL: `cassandra://host/journal?tls=true`."""

    local_dc: str = Field(
        default="",
        max_length=200,
        description=(
            "The data centre whose nodes are used, and which LOCAL_QUORUM and LOCAL_SERIAL refer to. Replicators and "
            "readers of a store must use the same one with these levels. A cluster of several data centres is refused "
            "without it, unless no level is local. In a URL also `dc`."
        ),
    )
    tls: bool = Field(
        default=False, description="Connect with TLS. The certificate of a node is always verified against `tls_ca`."
    )
    tls_ca: str = Field(
        default="",
        description="Path of the certificates, in PEM, that the nodes' ones are signed by; empty: those of the system.",
    )
    tls_check_hostname: bool = Field(
        default=True,
        description=(
            "Whether a node's certificate must name the address that the node is reached at: of its contact point "
            "first, then the one that it announces (`rpc_address` or `broadcast_rpc_address`)."
        ),
    )
    tls_certificate: str = Field(
        default="", description="Path of the client's certificate in PEM, where nodes have `require_client_auth`."
    )
    tls_key: str = Field(
        default="",
        description="Path of its private key in PEM, without a password; empty: it is in `tls_certificate`.",
    )
    read_consistency: ReadLevel = Field(
        default="LOCAL_QUORUM",
        description=(
            "The consistency level of reads. A level is refused if a read could miss what a write at "
            "`write_consistency` has acknowledged."
        ),
    )
    write_consistency: WriteLevel = Field(
        default="LOCAL_QUORUM",
        description="The consistency level of writes. EACH_QUORUM lets readers of every data centre use LOCAL_QUORUM.",
    )
    serial_consistency: Literal["SERIAL", "LOCAL_SERIAL"] = Field(
        default="LOCAL_SERIAL",
        description=(
            "The level of compare-and-sets. SERIAL where replicators or installers may run in several data centres."
        ),
    )
    replicas: Replicas = Field(
        default="1",
        description=(
            "How often the keyspace keeps each row, where `inorder schema install` creates it: a number for "
            "SimpleStrategy, or numbers by data centre for NetworkTopologyStrategy, such as `dc1:3,dc2:3`. An existing "
            "keyspace is not changed."
        ),
    )
    journal_table: CassandraTable = Field(default="journal", description="Name of the table of events.")
    metajournal_table: CassandraTable = Field(default="metajournal", description="Name of the table of heads.")
    pointer_table: CassandraTable = Field(default="pointer2", description="Name of the table of offsets.")
    setting_table: CassandraTable = Field(default="setting", description="Name of the table of the schema's version.")
    locks_table: CassandraTable = Field(default="locks", description="Name of the table of locks.")
    snapshot_table: CassandraTable = Field(default="snapshot", description="Name of the table of snapshots.")
    quarantine_table: CassandraTable = Field(default="quarantine", description="Name of the quarantine.")
    clock_table: CassandraTable = Field(
        default="clock", description="Name of the table of the times that rows are written with."
    )
    topic_table: CassandraTable = Field(
        default="journal_topic", description="Name of the table of topics, with their ids and partition counts."
    )

    def added_to(self, url: str) -> str:
        """The URL with those options that were set; one for another kind of store is not changed."""
        values = self.model_dump(include=self.model_fields_set)
        if not values or not url.startswith("cassandra:"):
            return url
        encoded = urlencode(
            {name: str(value).lower() if type(value) is bool else value for name, value in values.items()}
        )
        return f"{url}{'&' if urlsplit(url).query else '?'}{encoded}"

    @property
    def tables(self) -> dict[str, str]:
        """The name of each table, by its usual one."""
        return {
            "journal": self.journal_table,
            "metajournal": self.metajournal_table,
            "pointer2": self.pointer_table,
            "setting": self.setting_table,
            "locks": self.locks_table,
            "snapshot": self.snapshot_table,
            "quarantine": self.quarantine_table,
            "clock": self.clock_table,
            "journal_topic": self.topic_table,
        }

    @property
    def is_local(self) -> bool:
        """Whether a level depends on the data centre of the node that is asked."""
        levels = self.read_consistency, self.write_consistency, self.serial_consistency
        return any(level.startswith("LOCAL_") for level in levels)

    def contradictions(self) -> Iterator[str]:
        """Options that cannot be used together, each with the reason."""
        levels = self.read_consistency, self.write_consistency
        if "ALL" not in levels and levels not in _OVERLAPPING:
            yield f"read_consistency {levels[0]} may miss what write_consistency {levels[1]} has acknowledged"
        if not self.tls and (self.tls_ca or self.tls_certificate or self.tls_key or not self.tls_check_hostname):
            yield "options tls_… need tls = true"
        if self.tls_key and not self.tls_certificate:
            yield "tls_key needs tls_certificate"
        for name, count in Counter(self.tables.values()).items():
            if count > 1:
                yield f"{count} tables are called {name}"
            elif name in _DROPPED:
                yield f"a migration of the schema drops a table called {name}"


def cassandra_options(url: str) -> CassandraSettings:
    """The options in the query of a URL; raises `ConfigurationError` for unknown ones, naming them."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    options = {_OLD_NAMES.get(name, name): value for name, value in pairs}
    problems: list[str] = []
    if len(options) < len(pairs):
        twice = [name for name, count in Counter(_OLD_NAMES.get(name, name) for name, _ in pairs).items() if count > 1]
        problems.append(f"{', '.join(twice)} is set twice")
    try:
        found = CassandraSettings.model_validate(options)
        problems += found.contradictions()
    except ValidationError as error:
        found = CassandraSettings()
        problems += [_describe(each) for each in error.errors(include_input=False, include_url=False)]
    if problems:
        known = ", ".join(CassandraSettings.model_fields)
        raise ConfigurationError(
            f"The options of Cassandra in journal.store or journal.cassandra: {'; '.join(problems)}.",
            hint=f"Known options: {known}.",
        )
    return found


def _describe(error: ErrorDetails) -> str:
    name = ".".join(map(str, error["loc"]))
    return f"unknown option {name}" if error["type"] == "extra_forbidden" else f"{name}: {error['msg']}"


Millis = Annotated[Whole, Field(ge=0, le=3_600_000)]


class StoreBreakerSettings(Section):
    """A circuit breaker for reads of the store: after many failures in a row it is not queried for a while."""

    is_enabled: bool = Field(
        default=True, description="Whether it is used. Without it each call waits for the store until its time limit."
    )
    threshold: Whole = Field(
        default=100,
        ge=1,
        le=100_000,
        description=(
            "After so many calls in a row that failed with an error that may pass, further ones fail at once. The "
            "head cache calls about once a second while the store is away."
        ),
    )
    open_seconds: Whole = Field(
        default=5, ge=1, le=3600, description="How long calls fail at once before the store is tried again."
    )


class SlowCallSettings(Section):
    """Calls of journals that take longer, in milliseconds, are logged as `journal.slow_call`; 0 logs none of a kind."""

    append_ms: Millis = Field(default=500, description="An append.")
    read_ms: Millis = Field(default=5000, description="What a reader waited for the events of one read.")
    other_ms: Millis = Field(
        default=1000, description="Each of `pointer`, `delete`, `purge`, `mark`, and of the calls for snapshots."
    )

    store_ms: Millis = Field(
        default=1000,
        description=(
            "Each call to the store: `store_pointer`, `store_offset`, and what was waited for the rows of one "
            "`store_read` or `store_ids`."
        ),
    )

    def seconds(self) -> dict[str, float]:
        """The limit of each kind of call."""
        limits = {"append": self.append_ms, "read": self.read_ms} | dict.fromkeys(_OTHER_CALLS, self.other_ms)
        limits |= dict.fromkeys(_STORE_CALLS, self.store_ms)
        return {call: limit / 1000 for call, limit in limits.items() if limit}


_OTHER_CALLS = (
    *("pointer", "delete", "purge", "mark"),
    *("save_snapshot", "snapshot", "snapshots", "delete_snapshots", "recover"),
)
_STORE_CALLS = ("store_pointer", "store_offset", "store_read", "store_ids")


class JournalSettings(Section):
    """Journals: append, read, delete and purge on Kafka, with a replicated store behind it."""

    topic_prefixes: list[TopicName] = Field(
        default=["journal"],
        description=(
            "Topics whose names begin like this hold journals. They must not be compacted, and their retention is how "
            "long replication may be down."
        ),
    )
    store: SecretUrl | None = Field(
        default=None,
        description=(
            "Where journals are replicated to and read from: a `postgresql+psycopg://` URL, or "
            "`cassandra://host:port/keyspace`. The default is the database of `database.url`."
        ),
    )
    cassandra: CassandraSettings = Field(default_factory=CassandraSettings)
    keys: SecretUrl | None = Field(
        default=None,
        description=(
            "The database of data keys, a SQLAlchemy URL as for `database.url`. If it is set, payloads of events and "
            "snapshots are sealed with a key of their journal, and a purge destroys the key, so that what Kafka "
            "retains cannot be read. Every append then reads the journal first. All writers and readers must use the "
            "same. It needs `pip install 'inorder[crypto]'`."
        ),
    )
    segment_size: Whole = Field(
        default=10_000,
        ge=2,
        le=2**31 - 1,
        description=(
            "After so many sequence numbers the rows of a journal go to its next segment, so that no partition of the "
            "store grows without limit. It is stored with each journal at its first event, so a change affects "
            "new journals only."
        ),
    )
    head_cache: bool = Field(
        default=True,
        description=(
            "Follow each topic that is read, so that a read knows what the store lacks without a request to Kafka. It "
            "costs a consumer of all partitions for each topic; without it every read of a journal that is not "
            "replicated yet reads from Kafka."
        ),
    )
    replicated_topic: TopicNameOrNone = Field(
        default="inorder.journal.replicated",
        description=(
            "The compacted topic on which replicators announce their progress, so that readers can wait for it; it is "
            "created if it does not exist. Replicators and readers of a store must use the same. Empty: no "
            "announcements."
        ),
    )
    wait_for_store_ms: Whole = Field(
        default=0,
        ge=0,
        le=60_000,
        description=(
            "How long a read waits for the store where events that it needs are not replicated yet, before it reads "
            "them from Kafka; 0 reads Kafka at once. Set it above the replicator's usual delay (20 for the engine "
            "`resident`, 500 for `micro-batch`) to save consumers on the broker when there are many reads. While "
            "replication is down one read for each partition waits, the others do not."
        ),
    )
    max_consumers: Whole = Field(
        default=64,
        ge=1,
        le=10_000,
        description=(
            "The most Kafka consumers that reads of the log use at once, in one `Journals`. Further reads wait for one "
            "within `journal.timeout_seconds`. A read that is not at its end keeps its consumer until it is closed."
        ),
    )
    snapshots: Whole = Field(
        default=10,
        ge=1,
        le=1000,
        description=(
            "How many snapshots a journal keeps: those with the largest numbers; a new one replaces the smallest. "
            "After it is lowered, a journal's next save removes the surplus."
        ),
    )
    timeout_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description="How long one step of an append or a read may take before it fails.",
    )
    slow_calls: SlowCallSettings = Field(default_factory=SlowCallSettings)
    breaker: StoreBreakerSettings = Field(default_factory=StoreBreakerSettings)
    expire_per_second: Whole = Field(
        default=100,
        ge=1,
        le=100_000,
        description=(
            "The most expired journals that the job `expire` purges per second. Each is one action in the log and "
            "some deletes in the store; catching up after a missed day should not slow writers down."
        ),
    )
    origin: str = Field(
        default="",
        max_length=200,
        description="The origin of a record, written to its header; empty means the host name.",
    )

    def store_url(self, database: DatabaseSettings) -> str:
        """The store's URL with its password; raises `ConfigurationError` where none is set."""
        return self.cassandra.added_to(self.store.get_secret_value() if self.store else database.require_url())

    @field_validator("keys", mode="before")
    @classmethod
    def _known_database(cls, value: Any) -> Any:
        return check_scheme(value, "a SQLAlchemy URL", DATABASE_SCHEMES)

    @field_validator("store", mode="before")
    @classmethod
    def _known_scheme(cls, value: Any) -> Any:
        return check_scheme(value, "a URL", SCHEMES)
