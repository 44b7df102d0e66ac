-- name: now
-- UTC without a zone, as Rails keeps times.
(clock_timestamp() AT TIME ZONE 'UTC');

-- name: stale
-- A lock that was renewed before this may be taken by any worker.
(clock_timestamp() AT TIME ZONE 'UTC' - make_interval(secs => %(stale_seconds)s));

-- name: topics
-- One step in the index a topic, however many messages each has.
WITH RECURSIVE found (topic) AS (
  (SELECT topic FROM {table} ORDER BY topic LIMIT 1)
  UNION ALL
  SELECT (SELECT topic FROM {table} AS later WHERE later.topic > found.topic ORDER BY topic LIMIT 1)
  FROM found WHERE found.topic IS NOT NULL
)
SELECT topic FROM found WHERE topic IS NOT NULL;

-- name: create
-- Only a row that is there already is no error.
INSERT INTO {locks} (topic) VALUES (%(topic)s) ON CONFLICT (topic) DO NOTHING;

-- name: read
-- The oldest messages, less those of parked keys; parked keys are read once a statement. Large messages come without their
-- content, as in outbox.sql.
--
-- BETWEEN, and the topic in ORDER BY, leave the index (topic, id) as the only one in order. With `=` the planner may walk the
-- primary key instead, past all that waits for another topic that rests.
SELECT {columns} FROM (
  SELECT *, {size} > %(most)s AS is_large FROM {table}
  WHERE topic BETWEEN %(topic)s AND %(topic)s
    AND ({key} IS NULL OR {key} <> ALL (ARRAY(
      SELECT {key} FROM inorder_exceeded
      WHERE outbox = %(outbox)s AND topic = %(topic)s AND parks AND {key} IS NOT NULL
    )))
  ORDER BY topic, id LIMIT %(limit)s
) AS met;

-- name: read_by_id
-- Some messages.
SELECT {columns} FROM (SELECT *, {size} > %(most)s AS is_large FROM {table} WHERE id = ANY(%(ids)s)) AS met;

-- name: sizes
-- The sizes of some messages.
SELECT id, {size} FROM {table} WHERE id = ANY(%(ids)s);

-- name: stamp_held
-- The batch, by id, if the lock is ours. One statement, so that a worker which is paused never holds the lock row itself:
-- others could not even look whether the lock is stale.
WITH held AS (
  UPDATE {locks} SET locked_at = {now} WHERE topic = %(topic)s AND locked_by = %(worker)s RETURNING 1
), stamped AS (
  UPDATE {table} SET session_id = %(session)s, updated_at = {now}
  WHERE EXISTS (SELECT FROM held) AND id = ANY(%(ids)s) AND topic = %(topic)s
  RETURNING 1
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM stamped);

-- name: delete_held
-- What was sent in this session, if the lock is ours; one statement as well.
WITH held AS (
  UPDATE {locks} SET locked_at = {now} WHERE topic = %(topic)s AND locked_by = %(worker)s RETURNING 1
), deleted AS (
  DELETE FROM {table}
  WHERE EXISTS (SELECT FROM held) AND id = ANY(%(ids)s) AND topic = %(topic)s AND session_id = %(session)s
  RETURNING 1
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM deleted);

-- name: touch_empty
-- Topics without a lock and without messages.
UPDATE {locks} SET last_processed_at = {now} WHERE locked_by IS NULL AND topic <> ALL(CAST(%(topics)s AS text[]));
