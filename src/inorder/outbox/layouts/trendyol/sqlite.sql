-- The tables of PollingOutboxPublisher on SQLite, for development. The original knows PostgreSQL, SQL Server and Couchbase only.

-- name: install
-- The same columns. AUTOINCREMENT, because a plain rowid is given again once the newest row is deleted.
CREATE TABLE IF NOT EXISTS {table} (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  "key"        VARCHAR(200),
  "value"      TEXT NOT NULL,
  topic        VARCHAR(1000) NOT NULL,
  created_by   VARCHAR(200),
  created_date TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  header       TEXT
);

-- name: install_missing
-- Ids that the offset has passed and that are not delivered.
CREATE TABLE IF NOT EXISTS {missing} (
  id               INTEGER PRIMARY KEY,
  missed_date      TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  retry_count      INTEGER DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT 0
);

-- name: install_exceeded
-- Ids that were given up.
CREATE TABLE IF NOT EXISTS {exceeded} (
  id               INTEGER PRIMARY KEY,
  missed_date      TEXT,
  retry_count      INTEGER DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT 0,
  exceeded_date    TEXT DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  reason           TEXT
);

-- name: install_offset
-- One row: all ids up to this one are delivered, missing or exceeded.
CREATE TABLE IF NOT EXISTS {offset} (
  "offset" INTEGER NOT NULL
);

-- name: install_offset_row
-- The relay cannot begin without this row.
INSERT INTO {offset} ("offset") SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {offset});

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes; as bytes, because the driver raises for text that is not UTF-8.
id, CAST(topic AS BLOB), CAST("key" AS BLOB), CAST("value" AS BLOB), CAST(header AS BLOB);

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(CAST("topic" AS BLOB)), 0) + COALESCE(LENGTH(CAST("key" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("value" AS BLOB)), 0) + COALESCE(LENGTH(CAST("header" AS BLOB)), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard: the bytes that are sent.
CAST("key" AS BLOB);

-- name: written_at
-- When the row was written, in UTC.
created_date;

-- name: append
-- Adds one record.
INSERT INTO {table} (topic, "key", "value", header) VALUES (%(topic)s, %(text_key)s, %(text_value)s, %(header)s);
