-- Lists are bound as one JSON text.

-- name: now
-- UTC as text, as Rails writes it.
strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now');

-- name: stale
-- A lock that was renewed before this may be taken by any worker.
strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-' || %(stale_seconds)s || ' seconds');

-- name: topics
-- One step in the index a topic, however many messages each has.
WITH RECURSIVE found (topic) AS (
  SELECT min(topic) FROM {table}
  UNION ALL
  SELECT (SELECT min(topic) FROM {table} AS later WHERE later.topic > found.topic)
  FROM found WHERE found.topic IS NOT NULL
)
SELECT topic FROM found WHERE topic IS NOT NULL;

-- name: create
-- Only a row that is there already is no error.
INSERT INTO {locks} (topic) VALUES (%(topic)s) ON CONFLICT (topic) DO NOTHING;

-- name: read_by_id
-- Some messages.
SELECT {columns} FROM {table} WHERE id IN (SELECT value FROM json_each(%(ids)s));

-- name: sizes
-- The sizes of some messages.
SELECT id, {size} FROM {table} WHERE id IN (SELECT value FROM json_each(%(ids)s));

-- name: stamp
-- The batch, by id.
UPDATE {table} SET session_id = %(session)s, updated_at = {now}
WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND topic = %(topic)s;

-- name: delete
-- What was sent in this session.
DELETE FROM {table}
WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND topic = %(topic)s AND session_id = %(session)s;

-- name: touch_empty
-- Topics without a lock and without messages.
UPDATE {locks} SET last_processed_at = {now}
WHERE locked_by IS NULL AND topic NOT IN (SELECT value FROM json_each(%(topics)s));
