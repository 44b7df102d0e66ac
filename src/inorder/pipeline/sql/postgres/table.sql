-- The tables and statements of the job upsert. {table} and the column lists are rendered from the mapping, quoted; lists of values
-- are bound as array literals.

-- name: create_pointer
-- How far each partition is applied; the counters move in the commit that moves the pointer. topic_id is the incarnation of the
-- Kafka topic that the offsets belong to. leader_epoch is that of the last record, valid while leader_epoch_at = next_offset: an
-- engine that does not know it leaves it behind. end_offset is the offset after the last record of a closed generation.
-- unknown_fields counts records by the fields that the mapping does not name, as a JSON object.
-- waiting_for is why the table refuses most records, if that began (waiting_since) after the last slice (updated_at).
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
    topic_id          text,
    leader_epoch      integer,
    leader_epoch_at   bigint,
    end_offset        bigint,
    unknown_fields    text,
    waiting_since     timestamptz,
    waiting_for       text,
    PRIMARY KEY (pipeline, topic, "partition")
);

-- name: add_pointer_columns
-- For a table of version 0.1.0. Not a plain ADD COLUMN IF NOT EXISTS: that would wait for every open transaction of the table,
-- and make every new one wait, only to find that there is nothing to do.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('inorder_pointer') AND attname = 'unknown_fields' AND NOT attisdropped
  ) THEN
    ALTER TABLE inorder_pointer
      ADD COLUMN IF NOT EXISTS topic_id text,
      ADD COLUMN IF NOT EXISTS leader_epoch integer,
      ADD COLUMN IF NOT EXISTS leader_epoch_at bigint,
      ADD COLUMN IF NOT EXISTS end_offset bigint,
      ADD COLUMN IF NOT EXISTS unknown_fields text;
  END IF;
END
$$;

-- name: add_pointer_waiting
-- For a table without these columns, as above.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('inorder_pointer') AND attname = 'waiting_for' AND NOT attisdropped
  ) THEN
    ALTER TABLE inorder_pointer
      ADD COLUMN IF NOT EXISTS waiting_since timestamptz,
      ADD COLUMN IF NOT EXISTS waiting_for text;
  END IF;
END
$$;

-- name: create_dead_letter
-- Records that could not be applied, with the reason and their original bytes.
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

-- name: create_tombstone
-- Keys whose rows were deleted, with the version of the delete, so that no older record creates them again.
CREATE TABLE IF NOT EXISTS inorder_tombstone (
    pipeline           text        NOT NULL,
    key                bytea       NOT NULL,
    version_generation integer     NOT NULL,
    version_offset     bigint      NOT NULL,
    recorded_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, key)
);

-- name: create_tombstone_mark
-- For `inorder pipeline clean`: tombstones recorded before before_at are of no use once the records below these ends are gone.
-- ends is a JSON object: for each topic its Kafka id and the end of each partition.
CREATE TABLE IF NOT EXISTS inorder_tombstone_mark (
    pipeline  text        NOT NULL PRIMARY KEY,
    before_at timestamptz NOT NULL,
    ends      text        NOT NULL
);

-- name: create_table
-- The target table; updated_at is informative, order comes from the version columns alone. A row that another program inserts
-- is older than any record. The fillfactor leaves space in the pages, because an update within its page costs a third less.
CREATE TABLE IF NOT EXISTS {table} (
    {key_definitions},
    {definitions},
    version_generation integer     NOT NULL DEFAULT 0,
    version_offset     bigint      NOT NULL DEFAULT -1,
    updated_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY ({keys})
) WITH (fillfactor = 80);

-- name: existing_columns
-- The columns of the target table, with whether each is nullable.
SELECT a.attname, a.attnotnull FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped;

-- name: existing_keys
-- The columns of each unique key of the target table that can settle a conflict.
SELECT json_agg(a.attname)::text
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%(table)s) AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid;

-- name: required_columns
-- The number of columns, besides the key and those of inorder, that a new row requires and a message may lack.
SELECT count(*) FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
  AND a.attidentity = '' AND a.attgenerated = ''
  AND a.attname NOT IN ({own_names}) AND (NOT a.atthasdef OR a.attname IN ({field_names}));

-- name: has_triggers
-- Whether the table has triggers, which may leave traces although the row is not written.
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal);

-- name: lock_pointer
-- The mutex of a partition, held until the transaction ends; and whether the pipeline has tombstones.
SELECT next_offset, generation, topic_id, end_offset,
       EXISTS (SELECT FROM inorder_tombstone t WHERE t.pipeline = %(pipeline)s)
FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND "partition" = %(partition)s
FOR UPDATE;

-- name: begin_pointer
-- A partition that is seen for the first time; waits for a concurrent insert and keeps its row.
INSERT INTO inorder_pointer (pipeline, topic, "partition", generation, next_offset, topic_id)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(generation)s, %(next_offset)s, %(topic_id)s)
ON CONFLICT (pipeline, topic, "partition") DO NOTHING;

-- name: put_upsert
-- A bulk write. A null keeps its column, unless the statement is for rows that set it to null. A row that is newer, or that
-- would not change, is not touched. Returns keys only if some rows are not written.
WITH written AS (
    INSERT INTO {table} AS t ({keys}, {columns}, version_generation, version_offset)
    SELECT {incoming_keys}, {incoming}, %(generation)s, x.version_offset FROM {rows}
    ON CONFLICT ({keys}) DO UPDATE SET
        {assignments},
        version_generation = excluded.version_generation,
        version_offset = excluded.version_offset,
        updated_at = now()
    WHERE (t.version_generation, t.version_offset) < (excluded.version_generation, excluded.version_offset)
      AND {condition}
    RETURNING {found_keys}
)
SELECT count(*), CASE WHEN count(*) < %(rows)s THEN array_agg(ARRAY[{key_texts}]) END FROM written;

-- name: put_insert
-- The same for rows that must not exist.
WITH written AS (
    INSERT INTO {table} AS t ({keys}, {columns}, version_generation, version_offset)
    SELECT {incoming_keys}, {incoming}, %(generation)s, x.version_offset FROM {rows}
    ON CONFLICT ({keys}) DO NOTHING
    RETURNING {found_keys}
)
SELECT count(*), CASE WHEN count(*) < %(rows)s THEN array_agg(ARRAY[{key_texts}]) END FROM written;

-- name: put_update
-- The same for rows that must exist.
WITH written AS (
    UPDATE {table} AS t SET
        {assignments},
        version_generation = %(generation)s,
        version_offset = excluded.version_offset,
        updated_at = now()
    FROM (SELECT x.* FROM {rows}) AS excluded
    WHERE {same_key}
      AND (t.version_generation, t.version_offset) < (%(generation)s, excluded.version_offset)
      AND {condition}
    RETURNING {found_keys}
)
SELECT count(*), CASE WHEN count(*) < %(rows)s THEN array_agg(ARRAY[{key_texts}]) END FROM written;

-- name: remove
-- Deletes rows that are older.
DELETE FROM {table} AS t USING (SELECT x.* FROM {bare_rows}) AS excluded
WHERE {same_key} AND (t.version_generation, t.version_offset) < (%(generation)s, excluded.version_offset)
RETURNING {found_keys};

-- name: versions
-- The versions of the rows that exist.
SELECT {found_keys}, t.version_generation, t.version_offset
FROM (SELECT x.* FROM {bare_keys}) AS excluded JOIN {table} AS t ON {same_key};

-- name: tombstones
-- The tombstones of some keys.
SELECT key, version_generation, version_offset FROM inorder_tombstone
WHERE pipeline = %(pipeline)s AND key = ANY(%(keys)s::bytea[]);

-- name: entomb
-- Writes tombstones of rows that were deleted, or never existed.
INSERT INTO inorder_tombstone AS t (pipeline, key, version_generation, version_offset)
SELECT %(pipeline)s, x.* FROM unnest(%(keys)s::bytea[], %(generations)s::integer[], %(offsets)s::bigint[]) AS x
ON CONFLICT (pipeline, key) DO UPDATE SET
    version_generation = excluded.version_generation,
    version_offset = excluded.version_offset,
    recorded_at = now();

-- name: revive
-- Deletes the tombstone of a row that was created again.
DELETE FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND key = ANY(%(keys)s::bytea[]);

-- name: has_letters
-- Whether the partition has dead letters at or above an offset, which happens only after its pointer was lost.
SELECT EXISTS (
    SELECT FROM inorder_dead_letter
    WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND "partition" = %(partition)s AND "offset" >= %(offset)s
);

-- name: bury
-- Dead letters of a slice.
INSERT INTO inorder_dead_letter
    (pipeline, topic, "partition", generation, "offset", code, detail, key, value, record_timestamp)
SELECT %(pipeline)s, %(topic)s, %(partition)s, %(generation)s, x.*
FROM unnest(%(offsets)s::bigint[], %(codes)s::text[], %(details)s::text[],
            %(keys)s::bytea[], %(values)s::bytea[], %(timestamps)s::timestamptz[]) AS x;

-- name: bury_again
-- The same if some may exist already, which costs half as much again; they are the same records.
INSERT INTO inorder_dead_letter
    (pipeline, topic, "partition", generation, "offset", code, detail, key, value, record_timestamp)
SELECT %(pipeline)s, %(topic)s, %(partition)s, %(generation)s, x.*
FROM unnest(%(offsets)s::bigint[], %(codes)s::text[], %(details)s::text[],
            %(keys)s::bytea[], %(values)s::bytea[], %(timestamps)s::timestamptz[]) AS x
ON CONFLICT (pipeline, topic, "partition", "offset") DO NOTHING;

-- name: check_now
-- Checks deferred constraints immediately, because a failure at the commit cannot be rolled back alone.
SET CONSTRAINTS ALL IMMEDIATE;
