-- The tables and statements of the job upsert on SQLite 3.35 and later. Rows are written one by one, as there are no round trips.
-- Times are text in UTC.

-- name: create_pointer
-- How far each partition is applied; the counters move in the commit that moves the pointer. topic_id is the incarnation of the
-- Kafka topic that the offsets belong to. leader_epoch is that of the last record, valid while leader_epoch_at = next_offset: an
-- engine that does not know it leaves it behind. end_offset is the offset after the last record of a closed generation.
-- unknown_fields counts records by the fields that the mapping does not name, as a JSON object.
-- waiting_for is why the table refuses most records, if that began (waiting_since) after the last slice (updated_at).
CREATE TABLE IF NOT EXISTS inorder_pointer (
    pipeline          TEXT    NOT NULL,
    topic             TEXT    NOT NULL,
    "partition"       INTEGER NOT NULL,
    generation        INTEGER NOT NULL DEFAULT 0,
    next_offset       INTEGER NOT NULL,
    records_applied   INTEGER NOT NULL DEFAULT 0,
    records_identical INTEGER NOT NULL DEFAULT 0,
    records_stale     INTEGER NOT NULL DEFAULT 0,
    records_ignored   INTEGER NOT NULL DEFAULT 0,
    records_rejected  INTEGER NOT NULL DEFAULT 0,
    updated_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    topic_id          TEXT,
    leader_epoch      INTEGER,
    leader_epoch_at   INTEGER,
    end_offset        INTEGER,
    unknown_fields    TEXT,
    waiting_since     TEXT,
    waiting_for       TEXT,
    PRIMARY KEY (pipeline, topic, "partition")
);

-- name: add_pointer_topic_id
-- For a table of version 0.1.0; SQLite has no ADD COLUMN IF NOT EXISTS, so `install` ignores that the column exists.
ALTER TABLE inorder_pointer ADD COLUMN topic_id TEXT;

-- name: add_pointer_leader_epoch
-- For a table of version 0.1.0; SQLite has no ADD COLUMN IF NOT EXISTS, so `install` ignores that the column exists.
ALTER TABLE inorder_pointer ADD COLUMN leader_epoch INTEGER;

-- name: add_pointer_leader_epoch_at
-- For a table of version 0.1.0; SQLite has no ADD COLUMN IF NOT EXISTS, so `install` ignores that the column exists.
ALTER TABLE inorder_pointer ADD COLUMN leader_epoch_at INTEGER;

-- name: add_pointer_end_offset
-- For a table of version 0.1.0; SQLite has no ADD COLUMN IF NOT EXISTS, so `install` ignores that the column exists.
ALTER TABLE inorder_pointer ADD COLUMN end_offset INTEGER;

-- name: add_pointer_unknown_fields
-- As above.
ALTER TABLE inorder_pointer ADD COLUMN unknown_fields TEXT;

-- name: add_pointer_waiting_since
-- As above.
ALTER TABLE inorder_pointer ADD COLUMN waiting_since TEXT;

-- name: add_pointer_waiting_for
-- As above.
ALTER TABLE inorder_pointer ADD COLUMN waiting_for TEXT;

-- name: create_dead_letter
-- Records that could not be applied, with the reason and their original bytes.
CREATE TABLE IF NOT EXISTS inorder_dead_letter (
    pipeline         TEXT    NOT NULL,
    topic            TEXT    NOT NULL,
    "partition"      INTEGER NOT NULL,
    "offset"         INTEGER NOT NULL,
    generation       INTEGER NOT NULL DEFAULT 0,
    code             TEXT    NOT NULL,
    detail           TEXT    NOT NULL,
    "key"            BLOB,
    "value"          BLOB,
    record_timestamp TEXT,
    recorded_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (pipeline, topic, "partition", "offset")
);

-- name: create_tombstone
-- Keys whose rows were deleted, with the version of the delete, so that no older record creates them again.
CREATE TABLE IF NOT EXISTS inorder_tombstone (
    pipeline           TEXT    NOT NULL,
    "key"              BLOB    NOT NULL,
    version_generation INTEGER NOT NULL,
    version_offset     INTEGER NOT NULL,
    recorded_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (pipeline, "key")
);

-- name: create_tombstone_mark
-- For `inorder pipeline clean`: tombstones recorded before before_at are of no use once the records below these ends are gone.
-- ends is a JSON object: for each topic its Kafka id and the end of each partition.
CREATE TABLE IF NOT EXISTS inorder_tombstone_mark (
    pipeline  TEXT NOT NULL PRIMARY KEY,
    before_at TEXT NOT NULL,
    ends      TEXT NOT NULL
);

-- name: create_table
-- The target table; updated_at is informative, order comes from the version columns alone. A row that another program inserts
-- is older than any record.
CREATE TABLE IF NOT EXISTS {table} (
    {key_definitions},
    {definitions},
    version_generation INTEGER NOT NULL DEFAULT 0,
    version_offset     INTEGER NOT NULL DEFAULT -1,
    updated_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY ({keys})
);

-- name: existing_columns
-- The columns of the target table, with whether each is nullable.
SELECT name, "notnull" OR pk FROM pragma_table_info(%(name)s);

-- name: existing_keys
-- The columns of each unique key of the target table; an integer primary key has no index.
SELECT json_group_array(c.name)
FROM pragma_index_list(%(name)s) AS i, pragma_index_info(i.name) AS c WHERE i."unique" AND NOT i.partial GROUP BY i.name
UNION ALL
SELECT json_group_array(name) FROM pragma_table_info(%(name)s) WHERE pk;

-- name: required_columns
-- The number of columns, besides the key and those of inorder, that a new row requires and a message may lack.
SELECT count(*) FROM pragma_table_info(%(name)s)
WHERE "notnull" AND name NOT IN ({own_names}) AND (dflt_value IS NULL OR name IN ({field_names}));

-- name: lock_pointer
-- The transaction is the lock.
SELECT next_offset, generation, topic_id, end_offset,
       EXISTS (SELECT 1 FROM inorder_tombstone t WHERE t.pipeline = %(pipeline)s)
FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND "partition" = %(partition)s;

-- name: begin_pointer
-- A partition that is seen for the first time; waits for a concurrent insert and keeps its row.
INSERT INTO inorder_pointer (pipeline, topic, "partition", generation, next_offset, topic_id)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(generation)s, %(next_offset)s, %(topic_id)s)
ON CONFLICT (pipeline, topic, "partition") DO NOTHING;

-- name: put_upsert
-- A null keeps its column, unless the statement is for rows that set it to null. A row that is newer, or that would not
-- change, is not touched.
INSERT INTO {table} AS t ({keys}, {columns}, version_generation, version_offset)
VALUES ({incoming_keys}, {incoming}, %(generation)s, %(offset)s)
ON CONFLICT ({keys}) DO UPDATE SET
    {assignments},
    version_generation = %(generation)s,
    version_offset = %(offset)s,
    updated_at = {now}
WHERE (t.version_generation, t.version_offset) < (%(generation)s, %(offset)s) AND {condition};

-- name: put_insert
-- The same for a row that must not exist.
INSERT INTO {table} ({keys}, {columns}, version_generation, version_offset)
VALUES ({incoming_keys}, {incoming}, %(generation)s, %(offset)s)
ON CONFLICT ({keys}) DO NOTHING;

-- name: put_update
-- The same for a row that must exist.
UPDATE {table} AS t SET
    {assignments},
    version_generation = %(generation)s,
    version_offset = %(offset)s,
    updated_at = {now}
WHERE {same_key} AND (t.version_generation, t.version_offset) < (%(generation)s, %(offset)s) AND {condition};

-- name: remove
-- Deletes a row that is older.
DELETE FROM {table} AS t
WHERE {same_key} AND (t.version_generation, t.version_offset) < (%(generation)s, %(offset)s);

-- name: version
-- The version of a row.
SELECT t.version_generation, t.version_offset FROM {table} AS t WHERE {same_key};

-- name: tombstone
-- The tombstone of one key.
SELECT version_generation, version_offset FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND "key" = %(key)s;

-- name: entomb
-- Writes the tombstone of a row that was deleted, or never existed.
INSERT INTO inorder_tombstone (pipeline, "key", version_generation, version_offset)
VALUES (%(pipeline)s, %(key)s, %(generation)s, %(offset)s)
ON CONFLICT (pipeline, "key") DO UPDATE SET
    version_generation = excluded.version_generation, version_offset = excluded.version_offset, recorded_at = {now};

-- name: revive
-- Deletes the tombstone of a row that was created again.
DELETE FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND "key" = %(key)s;

-- name: bury
-- A dead letter; an existing one is the same record.
INSERT INTO inorder_dead_letter
    (pipeline, topic, "partition", generation, "offset", code, detail, "key", "value", record_timestamp)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(generation)s, %(offset)s, %(code)s, %(detail)s, %(key)s, %(value)s,
        %(timestamp)s)
ON CONFLICT DO NOTHING;
