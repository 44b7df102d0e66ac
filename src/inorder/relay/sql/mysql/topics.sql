-- Lists are bound as one JSON text, and joined by the primary key and by no other plan: a DELETE or UPDATE that walks waits for
-- the rows of every open transaction on its way.

-- name: now
-- UTC, whatever the session's time zone.
UTC_TIMESTAMP(6);

-- name: stale
-- A lock that was renewed before this may be taken by any worker.
(UTC_TIMESTAMP(6) - INTERVAL ROUND(%(stale_seconds)s * 1000000) MICROSECOND);

-- name: topics
-- The optimiser takes one step in the index a topic.
SELECT DISTINCT topic FROM {table};

-- name: create
-- Only a row that is there already is no error; INSERT IGNORE would hide others.
INSERT INTO {locks} (topic) VALUES (%(topic)s) ON DUPLICATE KEY UPDATE topic = VALUES(topic);

-- name: read_by_id
-- Some messages.
SELECT {columns} FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON id = listed;

-- name: sizes
-- The sizes of some messages.
SELECT id, {size} FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON id = listed;

-- name: stamp
-- The batch, by id.
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} AS message FORCE INDEX (PRIMARY) ON message.id = listed
SET message.session_id = %(session)s, message.updated_at = {now}
WHERE message.topic = %(topic)s;

-- name: delete
-- What was sent in this session.
DELETE message FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} AS message FORCE INDEX (PRIMARY) ON message.id = listed
WHERE message.topic = %(topic)s AND message.session_id = %(session)s;

-- name: touch_empty
-- Topics without a lock and without messages.
UPDATE {locks} SET last_processed_at = {now}
WHERE locked_by IS NULL AND NOT JSON_CONTAINS(%(topics)s, JSON_QUOTE(topic));
