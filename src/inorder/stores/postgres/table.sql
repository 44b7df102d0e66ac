-- The upsert job's tables and statements. {table}, {key} and the {lists} are made from the mapping, quoted.

-- name: create_pointer
-- How far each partition is applied; the counters move in the commit that moves the pointer.
CREATE TABLE IF NOT EXISTS inorder_pointer (
    pipeline          text        NOT NULL,
    topic             text        NOT NULL,
    "partition"       integer     NOT NULL,
    generation        integer     NOT NULL DEFAULT 0,
    next_offset       bigint      NOT NULL,
    records_applied   bigint      NOT NULL DEFAULT 0,
    records_identical bigint      NOT NULL DEFAULT 0,
    records_stale     bigint      NOT NULL DEFAULT 0,
    records_ignored   bigint      NOT NULL DEFAULT 0,
    records_rejected  bigint      NOT NULL DEFAULT 0,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, topic, "partition")
);

-- name: create_dead_letter
-- Records that could not be applied, with their reason and their bytes as they came.
CREATE TABLE IF NOT EXISTS inorder_dead_letter (
    pipeline         text        NOT NULL,
    topic            text        NOT NULL,
    "partition"      integer     NOT NULL,
    "offset"         bigint      NOT NULL,
    generation       integer     NOT NULL DEFAULT 0,
    code             text        NOT NULL,
    detail           text        NOT NULL,
    key              bytea,
    value            bytea,
    record_timestamp timestamptz,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, topic, "partition", "offset")
);

-- name: create_table
-- The target table; updated_at is for people, order comes from the version columns alone.
CREATE TABLE IF NOT EXISTS {table} (
    {key} {key_type} PRIMARY KEY,
    {definitions},
    version_generation integer     NOT NULL DEFAULT 0,
    version_offset     bigint      NOT NULL,
    updated_at         timestamptz NOT NULL DEFAULT now()
);

-- name: existing_columns
-- The columns of the target table, with whether each may be null and whether it is a unique key by itself.
SELECT a.attname, a.attnotnull, EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indpred IS NULL
      AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum
)
FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped;

-- name: pointers
-- Where a start goes on.
SELECT "partition", next_offset, generation FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s;

-- name: lock_pointer
-- The mutex of a partition: held until the transaction ends.
SELECT next_offset, generation FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND "partition" = %(partition)s
FOR UPDATE;

-- name: insert_pointer
-- The first slice of a partition; a rival's insert is waited for and kept.
INSERT INTO inorder_pointer (pipeline, topic, "partition", next_offset)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, 0)
ON CONFLICT (pipeline, topic, "partition") DO NOTHING;

-- name: upsert
-- A bulk write. coalesce is an exact presence mask, because no message can ask for a null (upsert.py): a null here
-- always means "keep". A row that is newer, or that would not change, is not touched and not returned.
INSERT INTO {table} AS t ({key}, {columns}, version_generation, version_offset)
SELECT x.{key}, {incoming}, %(generation)s, x.version_offset
FROM unnest(%(keys)s::{key_type}[], {arrays}, %(offsets)s::bigint[]) AS x ({key}, {columns}, version_offset)
ON CONFLICT ({key}) DO UPDATE SET
    {assignments},
    version_generation = excluded.version_generation,
    version_offset = excluded.version_offset,
    updated_at = now()
WHERE (t.version_generation, t.version_offset) < (excluded.version_generation, excluded.version_offset)
  AND {condition}
RETURNING t.{key};

-- name: stale
-- Which of the keys that were not written hold a newer version; the others are identical.
SELECT t.{key} FROM unnest(%(keys)s::{key_type}[], %(offsets)s::bigint[]) AS x (key, version_offset)
JOIN {table} t ON t.{key} = x.key
WHERE (t.version_generation, t.version_offset) >= (%(generation)s, x.version_offset);

-- name: bury
-- Dead letters of a slice; one that is there already is the same record.
INSERT INTO inorder_dead_letter
    (pipeline, topic, "partition", generation, "offset", code, detail, key, value, record_timestamp)
SELECT %(pipeline)s, %(topic)s, %(partition)s, %(generation)s, x.*
FROM unnest(%(offsets)s::bigint[], %(codes)s::text[], %(details)s::text[],
            %(keys)s::bytea[], %(values)s::bytea[], %(timestamps)s::timestamptz[]) AS x
ON CONFLICT (pipeline, topic, "partition", "offset") DO NOTHING;

-- name: move_pointer
-- The last statement before COMMIT.
UPDATE inorder_pointer SET
    next_offset       = %(next_offset)s,
    records_applied   = records_applied + %(applied)s,
    records_identical = records_identical + %(identical)s,
    records_stale     = records_stale + %(stale)s,
    records_ignored   = records_ignored + %(ignored)s,
    records_rejected  = records_rejected + %(rejected)s,
    updated_at        = now()
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND "partition" = %(partition)s;
