-- Deimos' tables on MySQL 8 and MariaDB 10.6 and later.

-- name: install
-- The messages. Deimos' own migration gives them the character set of the database; here topics compare byte by byte, as in
-- Kafka. Times are UTC whatever the session's time zone.
CREATE TABLE IF NOT EXISTS {table} (
  id            BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  topic         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  message       LONGBLOB,
  `key`         LONGBLOB,
  partition_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  session_id    CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
  created_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  updated_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), KEY {index} (topic, id)
) ENGINE = InnoDB;

-- name: install_locks
-- One row a topic: who works on it, since when, and whether it rests after an error.
CREATE TABLE IF NOT EXISTS {locks} (
  id                BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  topic             VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  locked_by         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  locked_at         DATETIME(6),
  error             BOOLEAN NOT NULL DEFAULT FALSE,
  retries           INT NOT NULL DEFAULT 0,
  last_processed_at DATETIME(6),
  UNIQUE KEY index_kafka_topic_info_on_topic (topic),
  KEY index_kafka_topic_info_on_locked_by_and_error (locked_by, error),
  KEY index_kafka_topic_info_on_locked_at (locked_at)
) ENGINE = InnoDB;

-- name: added
-- Tables made by Deimos have none.
session_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, `key`, message, partition_key;

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(`topic`), 0) + COALESCE(LENGTH(`key`), 0) + COALESCE(LENGTH(`message`), 0) +
COALESCE(LENGTH(`partition_key`), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard.
`key`;

-- name: written_at
-- When the row was written, in UTC.
created_at;

-- name: append
-- Adds one record; PyMySQL folds a list into statements of many rows, whose ids follow the list. The partition key is left
-- out: without one the key decides.
INSERT INTO {table} (topic, `key`, message, created_at, updated_at)
VALUES (%(topic)s, %(key)s, %(value)s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6));
