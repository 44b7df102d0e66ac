-- Lock rows and messages of the deimos layout, where all dialects read alike. {now} is the present as the columns keep it.

-- name: lock
-- Free and not resting, stale, or ours already: an earlier answer may have been lost.
UPDATE {locks} SET locked_by = %(worker)s, locked_at = {now}, error = FALSE
WHERE topic = %(topic)s
  AND ((locked_by IS NULL AND NOT error) OR locked_by = %(worker)s OR locked_at < {stale});

-- name: renew
-- Finds one row while the lock is ours, and keeps others from taking it until the transaction ends.
UPDATE {locks} SET locked_at = {now} WHERE topic = %(topic)s AND locked_by = %(worker)s;

-- name: unlock
-- Sent completely.
UPDATE {locks} SET locked_by = NULL, locked_at = NULL, error = FALSE, retries = 0, last_processed_at = {now}
WHERE topic = %(topic)s AND locked_by = %(worker)s;

-- name: fail
-- With the time, and not without one as the document has it: a lock without a time would never be stale.
UPDATE {locks} SET locked_by = NULL, locked_at = {now}, error = TRUE, retries = retries + 1
WHERE topic = %(topic)s AND locked_by = %(worker)s;

-- name: read
-- The oldest messages, less those of parked keys; large ones without their content, as in outbox.sql.
SELECT {columns} FROM {table}
WHERE topic = %(topic)s
  AND ({key} IS NULL OR {key} NOT IN (
    SELECT {key} FROM inorder_exceeded
    WHERE outbox = %(outbox)s AND topic = %(topic)s AND parks AND {key} IS NOT NULL
  ))
ORDER BY id LIMIT %(limit)s;

-- name: waiting
-- What waits for each topic, and since when.
SELECT topic, count(*), min(created_at) FROM {table} GROUP BY topic;

-- name: locks
-- Every lock row.
SELECT topic, last_processed_at, locked_by, locked_at, error, retries FROM {locks};

-- name: check_messages
-- Fails unless the columns are there.
SELECT id, topic, {key}, message, partition_key, session_id, created_at, updated_at FROM {table} LIMIT 1;

-- name: check_locks
-- Fails unless the columns are there.
SELECT topic, locked_by, locked_at, error, retries, last_processed_at FROM {locks} LIMIT 1;
