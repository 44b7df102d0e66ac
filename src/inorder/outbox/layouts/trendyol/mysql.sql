-- The tables of PollingOutboxPublisher on MySQL 8 and MariaDB 10.6 and later. The original knows PostgreSQL, SQL Server and
-- Couchbase only.

-- name: install
-- The same columns. Keys and topics compare byte by byte, as in Kafka. Times are UTC whatever the session's time zone.
CREATE TABLE IF NOT EXISTS {table} (
  id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  `key`        VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  `value`      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  topic        VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_by   VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  created_date DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  header       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
) ENGINE = InnoDB;

-- name: install_missing
-- Ids that the offset has passed and that are not delivered.
CREATE TABLE IF NOT EXISTS {missing} (
  id               BIGINT NOT NULL PRIMARY KEY,
  missed_date      DATETIME(6) DEFAULT (UTC_TIMESTAMP(6)),
  retry_count      INT DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT FALSE
) ENGINE = InnoDB;

-- name: install_exceeded
-- Ids that were given up. `reason` is ours.
CREATE TABLE IF NOT EXISTS {exceeded} (
  id               BIGINT NOT NULL PRIMARY KEY,
  missed_date      DATETIME(6),
  retry_count      INT DEFAULT 0,
  exception_thrown BOOLEAN DEFAULT FALSE,
  exceeded_date    DATETIME(6) DEFAULT (UTC_TIMESTAMP(6)),
  reason           LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
) ENGINE = InnoDB;

-- name: install_offset
-- One row: all ids up to this one are delivered, missing or exceeded.
CREATE TABLE IF NOT EXISTS {offset} (
  `offset` BIGINT NOT NULL
) ENGINE = InnoDB;

-- name: install_offset_row
-- The relay cannot begin without this row.
INSERT INTO {offset} (`offset`) SELECT 0 FROM DUAL WHERE NOT EXISTS (SELECT * FROM {offset});

-- name: added_exceeded
-- Tables made as the original's script does have none.
reason LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: id
-- Given out in order.
id;

-- name: columns
-- What `decode` takes.
id, topic, `key`, `value`, header;

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(`topic`), 0) + COALESCE(LENGTH(`key`), 0) + COALESCE(LENGTH(`value`), 0) +
COALESCE(LENGTH(`header`), 0));

-- name: topic
-- For the shard.
COALESCE(topic, '');

-- name: key
-- For the shard: the bytes that are sent.
CAST(CONVERT(`key` USING utf8mb4) AS BINARY);

-- name: written_at
-- When the row was written, in UTC.
created_date;

-- name: append
-- Adds one record; PyMySQL folds a list into statements of many rows, whose ids follow the list. The time is given, because a
-- table that others made may have the default CURRENT_TIMESTAMP, in the session's time zone.
INSERT INTO {table} (topic, `key`, `value`, header, created_date)
VALUES (%(topic)s, %(text_key)s, %(text_value)s, %(header)s, UTC_TIMESTAMP(6));
