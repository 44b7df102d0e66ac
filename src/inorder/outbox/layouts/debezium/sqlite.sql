-- The table of Debezium's outbox event router on SQLite, for development. Debezium itself does not read SQLite.

-- name: install
-- The five columns that Debezium documents, and `seq`, which writers need not know: uuids have no order, and rows are
-- published in the order of this number. AUTOINCREMENT, because a plain rowid is given again once the newest row is deleted.
-- SQLite cannot add such a column, so a table without it must be created again.
CREATE TABLE IF NOT EXISTS {table} (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  aggregatetype VARCHAR(255) NOT NULL,
  aggregateid   VARCHAR(255) NOT NULL,
  type          VARCHAR(255) NOT NULL,
  payload       TEXT
);

-- name: id
-- The number; the uuid is a header.
seq;

-- name: columns
-- What `decode` takes; as bytes, because the driver raises for text that is not UTF-8.
seq, CAST(aggregatetype AS BLOB), CAST(aggregateid AS BLOB), CAST(payload AS BLOB), CAST(id AS BLOB);

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(CAST("aggregatetype" AS BLOB)), 0) + COALESCE(LENGTH(CAST("aggregateid" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("payload" AS BLOB)), 0) + COALESCE(LENGTH(CAST("id" AS BLOB)), 0));

-- name: topic
-- For the shard; null or empty types have a flaw and no topic.
COALESCE('outbox.event.' || NULLIF(CAST(aggregatetype AS TEXT), ''), '');

-- name: key
-- For the shard: the bytes that are sent.
CAST(aggregateid AS BLOB);

-- name: written_at
-- Debezium's table does not say.
NULL;
