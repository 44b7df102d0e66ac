-- The table of Debezium's outbox event router on MySQL 8 and MariaDB 10.5 and later.

-- name: install
-- The five columns that Debezium documents, and `seq`, which writers need not know.
--
-- Debezium takes the order of its rows from the log of the database; their ids are uuids and have none. We read the table,
-- so rows need a number, and a transaction that saw the effects of another must get larger ones: AUTO_INCREMENT gives
-- numbers out in order.
CREATE TABLE IF NOT EXISTS {table} (
  id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  aggregatetype VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregateid   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  type          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload       JSON,
  seq           BIGINT NOT NULL AUTO_INCREMENT UNIQUE
) ENGINE = InnoDB;

-- name: added
-- The number, for a table that Debezium has served so far. Adding it numbers the rows in the order of their uuids, which is
-- none: let Debezium finish and delete its rows first.
seq BIGINT NOT NULL AUTO_INCREMENT UNIQUE;

-- name: id
-- The number; the uuid is a header.
seq;

-- name: columns
-- What `decode` takes. A payload may be JSON, text or binary: the driver gives text or bytes, and `decode` takes both.
seq, aggregatetype, aggregateid, payload, id;

-- name: size
-- The bytes of the columns that may be large.
(COALESCE(LENGTH(`aggregatetype`), 0) + COALESCE(LENGTH(`aggregateid`), 0) + COALESCE(LENGTH(`payload`), 0) +
COALESCE(LENGTH(`id`), 0));

-- name: topic
-- For the shard; null or empty types have a flaw and no topic.
COALESCE(CONCAT('outbox.event.', NULLIF(CONVERT(aggregatetype USING utf8mb4), '')), '');

-- name: key
-- For the shard: the bytes that are sent.
CAST(CONVERT(aggregateid USING utf8mb4) AS BINARY);

-- name: written_at
-- Debezium's table does not say.
CAST(NULL AS DATETIME);
