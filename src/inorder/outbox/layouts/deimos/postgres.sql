-- Deimos' tables on PostgreSQL 12 and later.

-- name: install
-- The messages, as the migration of Deimos makes them; times are UTC without a zone, as Rails keeps them. `session_id` is of
-- the document that describes the backend, not of its code: Deimos itself never reads it. Half of each
-- page stays free, so that stamping a row writes no index: a queue is short, and its pages are used again at once.
CREATE TABLE IF NOT EXISTS {table} (
  id            BIGSERIAL PRIMARY KEY,
  topic         VARCHAR NOT NULL,
  message       BYTEA,
  key           BYTEA,
  partition_key VARCHAR,
  session_id    UUID,
  created_at    TIMESTAMP(6) NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'),
  updated_at    TIMESTAMP(6) NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  toast_tuple_target = 8160,
  vacuum_truncate = false
);

-- name: install_index
-- Under the name that Rails gives it, so that a table of Deimos does not get a second one.
CREATE INDEX IF NOT EXISTS {index} ON {table} (topic, id);

-- name: install_locks
-- One row a topic: who works on it, since when, and whether it rests after an error.
CREATE TABLE IF NOT EXISTS {locks} (
  id                BIGSERIAL PRIMARY KEY,
  topic             VARCHAR NOT NULL,
  locked_by         VARCHAR,
  locked_at         TIMESTAMP(6),
  error             BOOLEAN NOT NULL DEFAULT false,
  retries           INTEGER NOT NULL DEFAULT 0,
  last_processed_at TIMESTAMP(6)
);

-- name: install_locks_topic
-- What makes a lock row the only one of its topic.
CREATE UNIQUE INDEX IF NOT EXISTS index_kafka_topic_info_on_topic ON {locks} (topic);

-- name: install_locks_locked_by
-- As in Deimos.
CREATE INDEX IF NOT EXISTS index_kafka_topic_info_on_locked_by_and_error ON {locks} (locked_by, error);

-- name: install_locks_locked_at
-- As in Deimos.
CREATE INDEX IF NOT EXISTS index_kafka_topic_info_on_locked_at ON {locks} (locked_at);

-- name: added
-- Tables made by Deimos have none.
session_id uuid;

-- name: id
-- Given out by one sequence, in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, key, message, partition_key;

-- name: size
-- The bytes of the columns that may be large.
(CAST(COALESCE(octet_length("topic"), 0) AS bigint) + COALESCE(octet_length("key"), 0) +
COALESCE(octet_length("message"), 0) + COALESCE(octet_length("partition_key"), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
key;

-- name: written_at
-- When the row was written, in UTC.
created_at;

-- name: append
-- Adds records in list order and wakes a relay that sleeps, in the manner of the native layout. The partition key is left
-- out: without one the key decides.
INSERT INTO {table} (topic, key, message, created_at, updated_at)
SELECT topic, key, message, clock_timestamp() AT TIME ZONE 'UTC', clock_timestamp() AT TIME ZONE 'UTC'
FROM unnest(
  CAST(%(topic)s AS text[]),
  CAST(%(key)s AS bytea[]),
  CAST(%(value)s AS bytea[])
) WITH ORDINALITY AS message (topic, key, message, place)
WHERE {woken}
ORDER BY place;
