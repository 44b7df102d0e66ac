-- The upsert job's statements that read alike in every dialect; tables and rows are in the dialect's own file.

-- name: pointers
-- Where a start goes on.
SELECT {partition}, next_offset, generation FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s;

-- name: move_pointer
-- The last statement before COMMIT.
UPDATE inorder_pointer SET
    next_offset       = %(next_offset)s,
    records_applied   = records_applied + %(applied)s,
    records_identical = records_identical + %(identical)s,
    records_stale     = records_stale + %(stale)s,
    records_ignored   = records_ignored + %(ignored)s,
    records_rejected  = records_rejected + %(rejected)s,
    updated_at        = {now}
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND {partition} = %(partition)s;

-- name: isolate
-- What follows can be undone alone.
SAVEPOINT inorder_isolated;

-- name: undo
-- As it was before.
ROLLBACK TO SAVEPOINT inorder_isolated;

-- name: release
-- The end of what could be undone alone.
RELEASE SAVEPOINT inorder_isolated;
