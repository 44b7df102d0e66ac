-- The tables of PollingOutboxPublisher on PostgreSQL 12 and later.

-- name: install
-- The events, which are never deleted. CACHE 1 is part of the protocol, as in the native layout. Times are UTC without a zone.
CREATE TABLE IF NOT EXISTS {table} (
  id           BIGINT GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  "key"        VARCHAR(200),
  "value"      TEXT NOT NULL,
  topic        VARCHAR(1000) NOT NULL,
  created_by   VARCHAR(200),
  created_date TIMESTAMP NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  header       TEXT
);

-- name: install_missing
-- Ids that the offset has passed and that are not delivered. The original's table has no primary key and may name an id twice.
CREATE TABLE IF NOT EXISTS {missing} (
  id               BIGINT PRIMARY KEY,
  missed_date      TIMESTAMP DEFAULT (now() AT TIME ZONE 'UTC'),
  retry_count      INTEGER DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT false
);

-- name: install_exceeded
-- Ids that were given up. `reason` is ours.
CREATE TABLE IF NOT EXISTS {exceeded} (
  id               BIGINT PRIMARY KEY,
  missed_date      TIMESTAMP,
  retry_count      INTEGER DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT false,
  exceeded_date    TIMESTAMP DEFAULT (now() AT TIME ZONE 'UTC'),
  reason           TEXT
);

-- name: install_offset
-- One row: all ids up to this one are delivered, missing or exceeded.
CREATE TABLE IF NOT EXISTS {offset} (
  "offset" BIGINT NOT NULL
);

-- name: install_offset_row
-- The relay cannot begin without this row.
INSERT INTO {offset} ("offset") SELECT 0 WHERE NOT EXISTS (SELECT FROM {offset});

-- name: added_exceeded
-- Tables made by the original's script have none.
reason text;

-- name: id
-- Given out by one sequence, in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, "key", "value", header;

-- name: size
-- The bytes of the columns that may be large.
(CAST(COALESCE(octet_length("topic"), 0) AS bigint) + COALESCE(octet_length("key"), 0) +
COALESCE(octet_length("value"), 0) + COALESCE(octet_length("header"), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard: the bytes that are sent.
convert_to("key", 'UTF8');

-- name: written_at
-- When the row was written, in UTC.
created_date;

-- name: append
-- Adds records in list order. Who wrote them (`created_by`) stays open.
INSERT INTO {table} (topic, "key", "value", header)
SELECT topic, "key", "value", header
FROM unnest(
  CAST(%(topic)s AS text[]),
  CAST(%(text_key)s AS text[]),
  CAST(%(text_value)s AS text[]),
  CAST(%(header)s AS text[])
) WITH ORDINALITY AS message (topic, "key", "value", header, place)
ORDER BY place;
