-- The native outbox table on PostgreSQL 12 and later.

-- name: install
-- The table, tuned as a queue whose rows live for milliseconds.
--
-- CACHE 1 is part of the protocol: with a larger cache each session would hold ids of its own, and two transactions that
-- follow one another could get ids in the wrong order, while the relay's scan takes id order for publishing order.
-- autovacuum: by count, not by share of the table, because the table is mostly dead rows by design.
-- vacuum_truncate: giving the tail back takes an exclusive lock, and the pages are wanted again a moment later.
-- toast_tuple_target: values up to a page stay in the row, uncompressed, so that most rows are one read and one write.
CREATE TABLE IF NOT EXISTS {table} (
  id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  topic varchar(249) NOT NULL,
  "key" bytea,
  "value" bytea,
  headers text,
  "partition" integer,
  "timestamp" bigint,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  leader_id uuid
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 10000,
  toast_tuple_target = 8160,
  vacuum_truncate = false
);

-- name: added
-- What `mark-purge` marks; tables made before there was one get it.
leader_id uuid;

-- name: id
-- Given out by one sequence, in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, "key", "value", headers, "partition", "timestamp";

-- name: size
-- The bytes of the columns that may be large.
(CAST(COALESCE(octet_length("topic"), 0) AS bigint) + COALESCE(octet_length("key"), 0) +
COALESCE(octet_length("value"), 0) + COALESCE(octet_length("headers"), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
"key";

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written.
created_at;

-- name: append
-- Adds records in list order and wakes a relay that sleeps, all in one statement and so in one round trip
-- (`layouts/waking/postgres.sql`).
--
-- ORDER BY makes the ids follow the list. The casts tell every driver the types, also of lists that hold only NULL.
INSERT INTO {table} (topic, "key", "value", headers, "partition", "timestamp")
SELECT topic, "key", "value", headers, "partition", "timestamp"
FROM unnest(
  CAST(%(topic)s AS text[]),
  CAST(%(key)s AS bytea[]),
  CAST(%(value)s AS bytea[]),
  CAST(%(headers)s AS text[]),
  CAST(%(partition)s AS integer[]),
  CAST(%(timestamp)s AS bigint[])
) WITH ORDINALITY AS message (topic, "key", "value", headers, "partition", "timestamp", place)
WHERE {woken}
ORDER BY place;
