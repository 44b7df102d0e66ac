-- goharvest's outbox table on SQLite, for development. goharvest itself knows PostgreSQL only.

-- name: install
-- The same columns; each header array is a JSON array in a text column. AUTOINCREMENT, because a plain rowid is given again
-- once the newest row is deleted.
CREATE TABLE IF NOT EXISTS {table} (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  create_time         TEXT NOT NULL,
  kafka_topic         VARCHAR(249) NOT NULL,
  kafka_key           VARCHAR(100) NOT NULL,
  kafka_value         VARCHAR(10000),
  kafka_header_keys   TEXT NOT NULL,
  kafka_header_values TEXT NOT NULL,
  leader_id           TEXT
);

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes; as bytes, because the driver raises for text that is not UTF-8.
id, CAST(kafka_topic AS BLOB), CAST(kafka_key AS BLOB), CAST(kafka_value AS BLOB),
CAST(kafka_header_keys AS BLOB), CAST(kafka_header_values AS BLOB);

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(CAST("kafka_topic" AS BLOB)), 0) + COALESCE(LENGTH(CAST("kafka_key" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("kafka_value" AS BLOB)), 0) + COALESCE(LENGTH(CAST("kafka_header_keys" AS BLOB)), 0) +
COALESCE(LENGTH(CAST("kafka_header_values" AS BLOB)), 0));

-- name: topic
-- For the shard.
COALESCE(kafka_topic, '');

-- name: key
-- For the shard: the bytes that are sent.
CAST(kafka_key AS BLOB);

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written, as its writer says.
create_time;
