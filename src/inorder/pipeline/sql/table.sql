-- The statements of the job upsert that are the same in every dialect; tables and rows are in the file of each dialect.

-- name: pointers
-- Where a start continues.
SELECT {partition}, next_offset, generation, topic_id, end_offset,
       CASE WHEN leader_epoch_at = next_offset THEN leader_epoch END
FROM inorder_pointer WHERE pipeline = %(pipeline)s AND topic = %(topic)s;

-- name: newest_version
-- The highest generation of a row or a tombstone. It reads the whole table, and runs only where a topic has no pointer at all.
SELECT max(each_table.newest) FROM (
    SELECT max(version_generation) AS newest FROM {table}
    UNION ALL
    SELECT max(version_generation) FROM inorder_tombstone WHERE pipeline = %(pipeline)s
) AS each_table;

-- name: add_column
-- A column for a field that an operator chose; rows that exist have a null in it.
ALTER TABLE {table} ADD COLUMN {column} {kind};

-- name: count_pointers
-- How many partitions of the topic are read.
SELECT count(*) FROM inorder_pointer WHERE pipeline = %(pipeline)s AND topic = %(topic)s;

-- name: read_unknown
-- The fields that the mapping does not name, by the number of records, as a JSON object; the pointer is locked.
SELECT unknown_fields FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s;

-- name: note_unknown
-- Only slices with such fields run it.
UPDATE inorder_pointer SET unknown_fields = %(unknown_fields)s
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s;

-- name: move_pointer
-- The last statement before COMMIT.
UPDATE inorder_pointer SET
    next_offset       = %(next_offset)s,
    leader_epoch      = %(leader_epoch)s,
    leader_epoch_at   = %(next_offset)s,
    records_applied   = records_applied + %(applied)s,
    records_identical = records_identical + %(identical)s,
    records_stale     = records_stale + %(stale)s,
    records_ignored   = records_ignored + %(ignored)s,
    records_rejected  = records_rejected + %(rejected)s,
    updated_at        = {now}
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s;

-- name: note_waiting
-- The partition waits for its table; the next slice that is applied ends it, by its later updated_at.
UPDATE inorder_pointer SET
    waiting_since = CASE WHEN waiting_since > updated_at THEN waiting_since ELSE {now} END,
    waiting_for   = %(reason)s
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s;

-- name: adopt_topic
-- Pointers of an older version, which did not store it.
UPDATE inorder_pointer SET topic_id = %(topic_id)s
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND topic_id IS NULL;

-- name: isolate
-- Sets a savepoint.
SAVEPOINT inorder_isolated;

-- name: undo
-- Rolls back to the savepoint, which stays set.
ROLLBACK TO SAVEPOINT inorder_isolated;

-- name: release
-- Releases the savepoint.
RELEASE SAVEPOINT inorder_isolated;
