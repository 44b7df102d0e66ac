-- The statements of a Delta table, for Spark SQL. {table} is delta.`path`; {source} is the view of a batch, whose columns are
-- positional: k0, k1, … the key, v0, v1, … the fields, mask0, … a bit for each field that the batch sets, then version_generation,
-- version_offset, wavered and deleted. Column lists and conditions are rendered from the mapping, quoted.

-- name: create_table
-- A key has one row; a deleted one is a tombstone: version_deleted is true, and its fields are null.
CREATE TABLE IF NOT EXISTS {table} (
    {definitions},
    version_generation INT       NOT NULL,
    version_offset     BIGINT    NOT NULL,
    version_deleted    BOOLEAN   NOT NULL,
    updated_at         TIMESTAMP NOT NULL
) USING delta;

-- name: add_column
-- What the operator runs for a field that the table lacks.
ALTER TABLE {table} ADD COLUMN {column} {kind};

-- name: newest_of_batch
-- A producer may have sent a key to two partitions: one row of a key is merged, that of the highest version.
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY version_generation DESC, version_offset DESC) AS place
    FROM {source}
) WHERE place = 1;

-- name: merge_upsert
-- Only rows with a lower version change; a row that would stay as it is does not, unless its records disagreed.
MERGE INTO {table} t USING {source} s ON {same_key}
WHEN MATCHED AND {is_newer} AND (s.deleted OR s.wavered OR t.version_deleted OR {differs}) THEN UPDATE SET {assignments}
WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values});

-- name: merge_insert
-- A row is never changed.
MERGE INTO {table} t USING {source} s ON {same_key}
WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values});

-- name: merge_update
-- No row is created, and nothing follows a delete.
MERGE INTO {table} t USING {source} s ON {same_key}
WHEN MATCHED AND {is_newer} AND NOT t.version_deleted AND (s.deleted OR s.wavered OR {differs})
    THEN UPDATE SET {assignments};

-- name: history
-- The last commits, newest first.
DESCRIBE HISTORY {table} LIMIT {count};

-- name: whole_history
-- All commits that the log still has.
DESCRIBE HISTORY {table};

-- name: newest_generation
-- The highest generation of a row.
SELECT coalesce(max(version_generation), 0) FROM {table};

-- name: optimize
-- Joins small files to larger ones.
OPTIMIZE {table};

-- name: vacuum
-- Removes files that no version of the last hours needs.
VACUUM {table} RETAIN {hours} HOURS;
