-- goharvest's outbox table on PostgreSQL 12 and later.

-- name: install
-- The table exactly as goharvest documents it, so that its writers find what they know. The sequence of a BIGSERIAL caches
-- one id, as our protocol needs it: transactions that follow one another get ids in their order.
CREATE TABLE IF NOT EXISTS {table} (
  id                  BIGSERIAL PRIMARY KEY,
  create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
  kafka_topic         VARCHAR(249) NOT NULL,
  kafka_key           VARCHAR(100) NOT NULL,
  kafka_value         VARCHAR(10000),
  kafka_header_keys   TEXT[] NOT NULL,
  kafka_header_values TEXT[] NOT NULL,
  leader_id           UUID
);

-- name: id
-- Given out by one sequence, in order.
id;

-- name: columns
-- What `decode` takes.
id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values;

-- name: size
-- The bytes of the columns that may be large. An array has no length of its own, and most are empty.
(CAST(COALESCE(octet_length("kafka_topic"), 0) AS bigint) + COALESCE(octet_length("kafka_key"), 0) +
COALESCE(octet_length("kafka_value"), 0) + CASE
  WHEN cardinality("kafka_header_keys") = 0 AND cardinality("kafka_header_values") = 0 THEN 0
  ELSE COALESCE(octet_length(CAST("kafka_header_keys" AS text)), 0) +
    COALESCE(octet_length(CAST("kafka_header_values" AS text)), 0)
END);

-- name: topic
-- For the shard.
COALESCE(kafka_topic, '');

-- name: key
-- For the shard: the bytes that are sent.
convert_to(kafka_key, 'UTF8');

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written.
create_time;
