-- The native outbox table on SQLite, for development.

-- name: install
-- The table. AUTOINCREMENT, because a plain rowid is given again once the newest row is deleted, and the relay remembers
-- what it has published by id. SQLite can add a column only where there is none, so a table made before there was a
-- `leader_id` serves every strategy but `mark-purge`, until it is created again.
CREATE TABLE IF NOT EXISTS {table} (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  topic VARCHAR(249) NOT NULL,
  "key" BLOB,
  "value" BLOB,
  headers TEXT,
  "partition" INTEGER,
  "timestamp" BIGINT,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  leader_id TEXT
);

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes. SQLite keeps any type in any column, so each is cast to what we expect; text comes as bytes, because
-- the driver raises for text that is not UTF-8.
id, CAST(topic AS BLOB), CAST("key" AS BLOB), CAST("value" AS BLOB), CAST(headers AS BLOB),
CAST("partition" AS INTEGER), CAST("timestamp" AS INTEGER);

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(CAST("topic" AS BLOB)), 0) + COALESCE(LENGTH(CAST("key" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("value" AS BLOB)), 0) + COALESCE(LENGTH(CAST("headers" AS BLOB)), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
CAST("key" AS BLOB);

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written, in UTC.
created_at;

-- name: append
-- Adds one record.
INSERT INTO {table} (topic, "key", "value", headers, "partition", "timestamp")
VALUES (%(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s);
