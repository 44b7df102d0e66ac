-- goharvest's outbox table on MySQL 8 and MariaDB 10.5 and later. goharvest itself knows PostgreSQL only.

-- name: install
-- The same columns; each header array is a JSON array in a text column. Keys and topics compare byte by byte, as in Kafka.
CREATE TABLE IF NOT EXISTS {table} (
  id                  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  create_time         DATETIME(6) NOT NULL,
  kafka_topic         VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kafka_key           VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kafka_value         VARCHAR(10000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  kafka_header_keys   LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kafka_header_values LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  leader_id           CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
) ENGINE = InnoDB;

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes.
id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values;

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(`kafka_topic`), 0) + COALESCE(LENGTH(`kafka_key`), 0) + COALESCE(LENGTH(`kafka_value`), 0) +
COALESCE(LENGTH(`kafka_header_keys`), 0) + COALESCE(LENGTH(`kafka_header_values`), 0));

-- name: topic
-- For the shard.
COALESCE(kafka_topic, '');

-- name: key
-- For the shard: the bytes that are sent.
CAST(CONVERT(kafka_key USING utf8mb4) AS BINARY);

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written, as its writer says.
create_time;
