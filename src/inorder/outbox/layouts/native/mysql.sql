-- The native outbox table on MySQL 8 and MariaDB 10.5 and later.

-- name: install
-- The table. InnoDB by name, because a table without transactions would be no outbox; topics compare byte by byte, as in
-- Kafka; the time of writing is UTC whatever the session's time zone.
CREATE TABLE IF NOT EXISTS {table} (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  topic VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `key` LONGBLOB,
  `value` LONGBLOB,
  headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  `partition` INT,
  `timestamp` BIGINT,
  created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  leader_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
) ENGINE = InnoDB;

-- name: added
-- What `mark-purge` marks; tables made before there was one get it.
leader_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, `key`, `value`, headers, `partition`, `timestamp`;

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(`topic`), 0) + COALESCE(LENGTH(`key`), 0) + COALESCE(LENGTH(`value`), 0) +
COALESCE(LENGTH(`headers`), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
`key`;

-- name: leader_id
-- Whose mark the row carries.
leader_id;

-- name: written_at
-- When the row was written, in UTC.
created_at;

-- name: append
-- Adds one record; PyMySQL folds a list into statements of many rows, whose ids follow the list.
INSERT INTO {table} (topic, `key`, `value`, headers, `partition`, `timestamp`)
VALUES (%(topic)s, %(key)s, %(value)s, %(headers)s, %(partition)s, %(timestamp)s);
