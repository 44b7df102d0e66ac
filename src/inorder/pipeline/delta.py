"""Delta tables as targets of the job `upsert`: what is committed, where a run begins, and the statements.

A Delta table has no transaction that several tasks could share, and no lock. So the tasks of a micro-batch only decode
and fold their records, by the same code as for SQL tables, and the driver writes the rows of all partitions with one
MERGE for each table and batch. A MERGE is one commit of the table's log: all of it, or nothing.

**What is authoritative.** The pointers of all partitions in the commit's `userMetadata`. They become visible with the
rows, so the two cannot disagree. Everything else is a copy: Spark's checkpoint, and the pointer rows in the database,
which `inorder pipeline status`, the gate of generations and the mirror read, and which are written after the commit.
There is one exception: `inorder pipeline reset` and a switch of a topic write pointers of a higher generation to the
database, and these count as newer than what the table has.

**Two drivers.** Each commit carries the next number of the pipeline (`txnAppId` and `txnVersion`), counted from the
table's own last one and never from Spark's batch id, which begins at 0 with each start. Delta refuses a commit whose
number was used meanwhile, and skips, without an error and without a result, a MERGE whose number is not above the last
one. In both cases nothing was written: this run of the query ends, and the next one begins at the pointers.

**Dead letters** are in the database. A task stores them before the driver commits the batch. If that fails, the same
records become the same letters again, which are there already.

**Deletes** leave a row with `version_deleted`, which keeps its version: an older record that is replayed cannot bring
the row back. Readers filter it out. Fields that a record lacks are kept, by a mask with a bit for each field.

Invariants: those of `slice.py`, with the batch of a table in the place of a slice. A row equals the fold of its key's
valid records below the pointer in any chunking, because rows are guarded by (generation, offset) in the same way.

Failure table:

| what happens                               | what follows                                                |
|--------------------------------------------|-------------------------------------------------------------|
| crash before the commit of the MERGE       | nothing was written; the batch is read again                |
| crash after it, before Spark's own commit  | the pointers in the table say so; reading continues there   |
| crash before the copy of the pointers      | the next start copies them                                  |
| two drivers                                | one of them commits; the other begins again at the pointers |
| the database lost its pointers             | those of the table are copied                               |
| RESTORE of the table to a version          | its rows and the pointers of that version belong together:  |
|                                            | a start replays from them; a running job stops the          |
|                                            | partitions that went back, or replays (`on_moved_back`)     |
| a MERGE beside a RESTORE                   | its metadata names the version it was computed for; one     |
|                                            | that a RESTORE came between does not count                  |
| OPTIMIZE, VACUUM, changed properties       | nothing; a MERGE that conflicts with it is tried again      |
| the log no longer has the commit with the  | the transaction number survives it: refused, as a start     |
| pointers (log retention)                   | from the first record would be a guess                      |
| the table was replaced or deleted          | refused, if records were applied before                     |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from inorder.database import sql
from inorder.engines.slice_work import Pointer
from inorder.model.errors import GuaranteeError
from inorder.model.names import DELETED_COLUMN, RESERVED_COLUMNS
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import NULL, FoldedRow

SCHEME: Final = "delta:"
_FORMAT = 1
_MASK_BITS = 63

TopicPointers: TypeAlias = Mapping[str, Mapping[int, Pointer]]
"""By Kafka topic and partition."""


def path_of(mapping: TableMapping) -> str:
    """The path of a mapping's Delta table."""
    return mapping.target.removeprefix(SCHEME)


# Pointers in the metadata of a commit.


@dataclass(frozen=True, slots=True)
class CommittedPointers:
    """What a commit of the job says in its `userMetadata`."""

    number: int
    """Of the commit among those of the pipeline: Delta's `txnVersion`."""
    base: int
    """The version of the table that the driver knew when it wrote the batch."""
    pointers: TopicPointers = field(default_factory=dict)


def encode_metadata(pipeline: str, committed: CommittedPointers) -> str:
    """The text of a commit's `userMetadata`.

    >>> encode_metadata("upsert:a", CommittedPointers(3, 7, {"t": {0: Pointer(5, 1, "id")}}))
    '{"inorder":1,"pipeline":"upsert:a","number":3,"base":7,"pointers":{"t":{"0":[5,1,"id"]}}}'
    """
    pointers = {
        topic: {str(number): (one.next_offset, one.generation, one.topic_id) for number, one in some.items()}
        for topic, some in committed.pointers.items()
    }
    fields = {"pipeline": pipeline, "number": committed.number, "base": committed.base, "pointers": pointers}
    return orjson.dumps({"inorder": _FORMAT, **fields}).decode()


def decode_metadata(pipeline: str, text: str | None) -> CommittedPointers | None:
    """What a commit of this pipeline says; None for one of any other program, which may hold anything."""
    try:
        found = orjson.loads(text or "")
        if found["inorder"] != _FORMAT or found["pipeline"] != pipeline:
            return None
        pointers = {
            topic: {int(number): _pointer(*one) for number, one in some.items()}
            for topic, some in found["pointers"].items()
        }
        return CommittedPointers(int(found["number"]), int(found["base"]), pointers)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _pointer(next_offset: int, generation: int, topic_id: str | None) -> Pointer:
    return Pointer(int(next_offset), int(generation), None if topic_id is None else str(topic_id))


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """An entry of the table's history."""

    version: int
    operation: str
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class NoPointers:
    """The table has no commit of the pipeline."""


@dataclass(frozen=True, slots=True)
class LostPointers:
    """The table may have rows of the pipeline, and their pointers are not known."""

    reason: str


Found: TypeAlias = CommittedPointers | NoPointers | LostPointers

RESTORE: Final = "RESTORE"


def replaces_rows(commit: DeltaCommit) -> bool:
    """Whether a commit of another program exchanged all rows of the table."""
    if "REPLACE TABLE" in commit.operation or commit.operation == "CLONE":
        return True
    return commit.operation == "WRITE" and (commit.parameters.get("mode") or "").lower() == "overwrite"


def find_pointers(commits: Iterable[DeltaCommit], pipeline: str, number: int | None) -> Found:
    """The pointers that belong to the rows of the table.

    `commits` come newest first and are read only as far as needed. `number` is the last transaction of the pipeline,
    which Delta keeps although it may have removed the commit from its log.
    """
    candidate: CommittedPointers | None = None
    restored_to: int | None = None
    version = -1
    for commit in commits:
        version = commit.version
        if candidate is not None and version <= candidate.base:
            return candidate
        if restored_to is not None and version > restored_to:
            continue
        if commit.operation == RESTORE:
            candidate = None
            to = commit.parameters.get("version")
            if to is None or not to.isdigit():
                return LostPointers(f"was restored to a point in time by version {version}")
            restored_to = int(to)
        elif replaces_rows(commit):
            return LostPointers(f"was replaced by {commit.operation} in version {version}")
        elif candidate is None and (found := decode_metadata(pipeline, commit.metadata)) is not None:
            if found.base == version - 1:
                return found
            candidate = found
    if version == 0 or number is None:
        return candidate or NoPointers()
    return LostPointers(f"has the transaction {number} of the pipeline, and its log no longer has the pointers of it")


def begin_at(
    mapping: TableMapping,
    topic: str,
    found: Found,
    ledger: Mapping[int, Pointer],
    firsts: Mapping[int, int],
    newest_generation: int,
) -> dict[int, Pointer]:
    """Where each partition of a topic begins.

    `ledger` are the pointer rows of the database, `firsts` the first offsets that the topic holds, `newest_generation`
    the highest of the table's rows. Raises `GuaranteeError` where records might be left out.
    """
    match found:
        case CommittedPointers(pointers=pointers):
            own = pointers.get(topic, {})
            return {
                number: _later(one, own[number], firsts.get(number, 0)) if number in own else one
                for number, one in ledger.items()
            }
        case NoPointers():
            if any(one.next_offset > firsts.get(number, 0) for number, one in ledger.items()):
                raise _refusal(mapping, topic, "is new, and records were applied to its predecessor")
        case LostPointers(reason):
            if any(one.generation <= newest_generation for one in ledger.values()):
                raise _refusal(mapping, topic, reason)
    return dict(ledger)


def _later(ledger: Pointer, committed: Pointer, first: int) -> Pointer:
    is_reset = ledger.generation > committed.generation
    # An operator accepted that the records in between are gone.
    is_accepted = committed.next_offset < first <= ledger.next_offset
    if is_reset or (is_accepted and ledger.generation == committed.generation):
        return ledger
    return replace(
        ledger,
        next_offset=committed.next_offset,
        generation=committed.generation,
        topic_id=committed.topic_id or ledger.topic_id,
        leader_epoch=None,
    )


def _refusal(mapping: TableMapping, topic: str, reason: str) -> GuaranteeError:
    return GuaranteeError(
        f"The Delta table {path_of(mapping)} {reason}.",
        hint=f"Restore the table to a version that the job wrote (RESTORE … TO VERSION AS OF), or run `inorder pipeline"
        f" reset {topic} --from-first`: it applies all that the topic holds again.",
    )


# From folded rows to columns.

_ARROW_TYPES: Final[Mapping[str, Any]] = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_SPARK_TYPES: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN",
    "integer": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}
"""Types that are missing here are canonical text: `numeric` may have 65 digits, a decimal number of Spark 38."""
_READERS: Final[Mapping[str, Any]] = {"timestamp": datetime.fromisoformat, "date": date.fromisoformat}


def spark_type(kind: str) -> str:
    return _SPARK_TYPES.get(kind, "STRING")


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The columns in which the rows of a batch travel from the tasks to the MERGE; their names are positional."""

    mapping: TableMapping

    @property
    def masks(self) -> int:
        """How many columns hold the bits of the fields."""
        return -(-len(self.mapping.fields) // _MASK_BITS)

    @property
    def definitions(self) -> list[tuple[str, str]]:
        """Names and types, those of Spark."""
        return [
            *((f"k{index}", spark_type(kind)) for index, (_, kind) in enumerate(self.mapping.key_columns)),
            *((f"v{index}", spark_type(kind)) for index, (_, kind) in enumerate(self.mapping.fields)),
            *((f"mask{index}", "BIGINT") for index in range(self.masks)),
            ("version_generation", "INT"),
            ("version_offset", "BIGINT"),
            ("wavered", "BOOLEAN"),
            ("deleted", "BOOLEAN"),
        ]

    @property
    def struct(self) -> str:
        """All of them as one type of Spark."""
        return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in self.definitions)}>"

    @property
    def arrow_type(self) -> Any:
        """The same as a type of Arrow."""
        types = {kind: _ARROW_TYPES[name] for name, kind in _SPARK_TYPES.items()}
        return pa.struct([(name, types.get(kind, pa.string())) for name, kind in self.definitions])

    def encode(self, rows: Sequence[FoldedRow], generation: int) -> Any:
        """The rows as one array."""
        kinds, count = [kind for _, kind in self.mapping.fields], len(rows)
        keys = [row.key if isinstance(row.key, tuple) else (row.key,) for row in rows]
        nothing = (NULL,) * len(kinds)
        values = [nothing if row.values is None else row.values for row in rows]
        columns: list[list[Any]] = [
            *map(list, zip(*keys, strict=True)),
            *(_column(kind, column) for kind, column in zip(kinds, zip(*values, strict=True), strict=True)),
            *(self._mask(values, index) for index in range(self.masks)),
            [generation] * count,
            [row.offset for row in rows],
            [row.wavered for row in rows],
            [row.values is None for row in rows],
        ]
        fields = [self.arrow_type.field(index) for index in range(self.arrow_type.num_fields)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def _mask(self, values: Sequence[tuple[Any, ...]], index: int) -> list[int]:
        part = slice(index * _MASK_BITS, (index + 1) * _MASK_BITS)
        full = (1 << len(self.mapping.fields[part])) - 1
        return [
            full if None not in row else sum(1 << bit for bit, one in enumerate(row[part]) if one is not None)
            for row in values
        ]


def _column(kind: str, values: Iterable[Any]) -> list[Any]:
    read = _READERS.get(kind)
    if read is None:
        return [None if value is NULL else value for value in values]
    return [None if value is NULL or value is None else read(value) for value in values]


# The statements of a table.

_STATEMENTS = sql.load("inorder.pipeline", "sql/delta/table.sql")


class DeltaSql:
    """The statements of `sql/delta/table.sql` for one mapping."""

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self.table = f"delta.`{path_of(mapping)}`"
        self._keys = [_quote(name) for name in mapping.key_names]
        self._fields = [_quote(name) for name in mapping.columns]

    def __getitem__(self, name: str) -> str:
        return _STATEMENTS.render(name, table=self.table)

    def create(self) -> str:
        keys = [f"{_quote(name)} {spark_type(kind)} NOT NULL" for name, kind in self.mapping.key_columns]
        fields = [f"{_quote(name)} {spark_type(kind)}" for name, kind in self.mapping.fields]
        return _STATEMENTS.render("create_table", table=self.table, definitions=",\n    ".join([*keys, *fields]))

    def add_column(self, name: str, kind: str) -> str:
        """Adds a column of one of the mapping's types."""
        return _STATEMENTS.render("add_column", table=self.table, column=_quote(name), kind=spark_type(kind))

    def history(self, count: int) -> str:
        return _STATEMENTS.render("history", table=self.table, count=str(count))

    def vacuum(self, hours: int) -> str:
        return _STATEMENTS.render("vacuum", table=self.table, hours=str(hours))

    def newest_of_batch(self, source: str) -> str:
        keys = ", ".join(f"k{index}" for index in range(len(self._keys)))
        return _STATEMENTS.render("newest_of_batch", source=source, keys=keys)

    def merge(self, source: str) -> str:
        is_set = [f"(s.mask{at // _MASK_BITS} & {1 << at % _MASK_BITS}L) <> 0" for at in range(len(self._fields))]
        kept = [
            f"{name} = CASE WHEN {bit} THEN s.v{at} ELSE t.{name} END"
            for at, (name, bit) in enumerate(zip(self._fields, is_set, strict=True))
        ]
        differs = [
            f"({bit} AND NOT (t.{name} <=> s.v{at}))"
            for at, (name, bit) in enumerate(zip(self._fields, is_set, strict=True))
        ]
        own = {
            "version_generation": "s.version_generation",
            "version_offset": "s.version_offset",
            DELETED_COLUMN: "s.deleted",
            "updated_at": "current_timestamp()",
        }
        values = [
            *(f"s.k{at}" for at in range(len(self._keys))),
            *(f"s.v{at}" for at in range(len(self._fields))),
            *own.values(),
        ]
        return _STATEMENTS.render(
            f"merge_{self.mapping.mode}",
            table=self.table,
            source=source,
            same_key=" AND ".join(f"t.{name} = s.k{at}" for at, name in enumerate(self._keys)),
            is_newer="(t.version_generation < s.version_generation OR (t.version_generation = s.version_generation"
            " AND t.version_offset < s.version_offset))",
            differs=f"({' OR '.join(differs)})",
            assignments=", ".join([*kept, *(f"{name} = {value}" for name, value in own.items())]),
            columns=", ".join([*self._keys, *self._fields, *own]),
            values=", ".join(values),
        )


def missing_columns(mapping: TableMapping, present: Iterable[str]) -> list[str]:
    """The columns of a mapping that an existing table lacks; Spark does not distinguish upper and lower case."""
    known = {name.lower() for name in present}
    wanted = (*mapping.key_names, *mapping.columns, *RESERVED_COLUMNS, DELETED_COLUMN)
    return [name for name in wanted if name.lower() not in known]


def _quote(name: str) -> str:
    return f"`{name}`"
