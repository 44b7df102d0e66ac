-- Deimos' tables on SQLite, for development. A table made by Deimos itself lacks `session_id`, which SQLite cannot add where it
-- may be there: create it again, or run `ALTER TABLE … ADD COLUMN session_id TEXT` once.

-- name: install
-- The messages. AUTOINCREMENT, because a plain rowid is given again once the newest row is deleted.
CREATE TABLE IF NOT EXISTS {table} (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  topic         VARCHAR NOT NULL,
  message       BLOB,
  "key"         BLOB,
  partition_key VARCHAR,
  session_id    TEXT,
  created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  updated_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);

-- name: install_index
-- Under the name that Rails gives it, so that a table of Deimos does not get a second one.
CREATE INDEX IF NOT EXISTS {schema}{index} ON {bare} (topic, id);

-- name: install_locks
-- One row a topic: who works on it, since when, and whether it rests after an error. Times are text, as Rails
-- writes it: UTC, and in the order of time.
CREATE TABLE IF NOT EXISTS {locks} (
  id                INTEGER PRIMARY KEY AUTOINCREMENT,
  topic             VARCHAR NOT NULL,
  locked_by         VARCHAR,
  locked_at         TEXT,
  error             BOOLEAN NOT NULL DEFAULT 0,
  retries           INTEGER NOT NULL DEFAULT 0,
  last_processed_at TEXT
);

-- name: install_locks_topic
-- What makes a lock row the only one of its topic.
CREATE UNIQUE INDEX IF NOT EXISTS {schema}index_kafka_topic_info_on_topic ON kafka_topic_info (topic);

-- name: install_locks_locked_by
-- As in Deimos.
CREATE INDEX IF NOT EXISTS {schema}index_kafka_topic_info_on_locked_by_and_error ON kafka_topic_info (locked_by, error);

-- name: install_locks_locked_at
-- As in Deimos.
CREATE INDEX IF NOT EXISTS {schema}index_kafka_topic_info_on_locked_at ON kafka_topic_info (locked_at);

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes; texts as bytes, because the driver raises for text that is not UTF-8.
id, CAST(topic AS BLOB), "key", message, CAST(partition_key AS BLOB);

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(CAST("topic" AS BLOB)), 0) + COALESCE(LENGTH(CAST("key" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("message" AS BLOB)), 0) + COALESCE(LENGTH(CAST("partition_key" AS BLOB)), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
"key";

-- name: written_at
-- When the row was written, in UTC.
created_at;

-- name: append
-- Adds one record. The partition key is left out: without one the key decides.
INSERT INTO {table} (topic, "key", message, created_at, updated_at)
VALUES (%(topic)s, %(key)s, %(value)s,
        strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'), strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'));
