-- The native outbox table on SQLite, for development.

-- name: install
-- The table. AUTOINCREMENT, because a plain rowid is given again once the newest row is deleted, and the relay remembers
-- what it has published by id.
CREATE TABLE IF NOT EXISTS {table} (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  topic VARCHAR(249) NOT NULL,
  "key" BLOB,
  "value" BLOB,
  headers TEXT,
  "partition" INTEGER,
  "timestamp" BIGINT,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- name: append
-- Adds one record.
INSERT INTO {table} (topic, "key", "value", headers, "partition", "timestamp")
VALUES (%(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s);
