-- name: read
-- Rows above an id, oldest first.
SELECT id, topic, key, value, headers, "partition", "timestamp"
FROM {table} WHERE id > %(above)s ORDER BY id LIMIT %(limit)s;

-- name: read_with_probes
-- The same, and single ids that were missing so far, in one snapshot.
SELECT id, topic, key, value, headers, "partition", "timestamp"
FROM {table} WHERE id = ANY(%(probes)s)
UNION ALL
(SELECT id, topic, key, value, headers, "partition", "timestamp"
 FROM {table} WHERE id > %(above)s ORDER BY id LIMIT %(limit)s);

-- name: holders
-- Transactions that may have taken ids: every writer locks the table before it takes one, and until it has ended.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = %(table)s::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: purge
-- Removes rows whose records are committed.
DELETE FROM {table} WHERE id = ANY(%(ids)s);

-- name: wake_up
-- The lock that a sleeping relay holds and the channel it listens on; publishers compute the same.
SELECT (1768845170::bigint << 32) | %(table)s::regclass::oid::bigint, 'inorder_' || %(table)s::regclass::oid;

-- name: begin_sleep
-- Fails while a publisher that did not mean to wake us is about to commit.
SELECT pg_try_advisory_lock(%(lock)s);

-- name: end_sleep
-- Publishers need not notify any more.
SELECT pg_advisory_unlock(%(lock)s);

-- name: status
-- What waits, and since when.
SELECT count(*), min(created_at) FROM {table};
