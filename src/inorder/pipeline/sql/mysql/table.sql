-- The tables and statements of the job upsert on MySQL 8 and MariaDB 10.6 and later. Texts compare byte by byte, times are UTC.
-- {rows} is replaced last, by tuples of escaped values. VALUES(…) has the type and the collation of its column, so that
-- two collations are never compared.

-- name: create_pointer
-- How far each partition is applied; the counters move in the commit that moves the pointer. topic_id is the incarnation of the
-- Kafka topic that the offsets belong to. leader_epoch is that of the last record, valid while leader_epoch_at = next_offset: an
-- engine that does not know it leaves it behind. end_offset is the offset after the last record of a closed generation.
-- unknown_fields counts records by the fields that the mapping does not name, as a JSON object.
-- waiting_for is why the table refuses most records, if that began (waiting_since) after the last slice (updated_at).
CREATE TABLE IF NOT EXISTS inorder_pointer (
    pipeline          VARCHAR(255) NOT NULL,
    topic             VARCHAR(249) NOT NULL,
    `partition`       INT          NOT NULL,
    generation        INT          NOT NULL DEFAULT 0,
    next_offset       BIGINT       NOT NULL,
    records_applied   BIGINT       NOT NULL DEFAULT 0,
    records_identical BIGINT       NOT NULL DEFAULT 0,
    records_stale     BIGINT       NOT NULL DEFAULT 0,
    records_ignored   BIGINT       NOT NULL DEFAULT 0,
    records_rejected  BIGINT       NOT NULL DEFAULT 0,
    updated_at        DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    topic_id          VARCHAR(64),
    leader_epoch      INT,
    leader_epoch_at   BIGINT,
    end_offset        BIGINT,
    unknown_fields    TEXT,
    waiting_since     DATETIME(6),
    waiting_for       TEXT,
    PRIMARY KEY (pipeline, topic, `partition`)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: add_pointer_columns_choose
-- For a table of version 0.1.0. MySQL knows no ADD COLUMN IF NOT EXISTS, so the statement is chosen first and run afterwards, on
-- one connection.
SET @inorder_install = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = DATABASE() AND table_name = 'inorder_pointer' AND column_name = 'end_offset') = 0,
  'ALTER TABLE inorder_pointer ADD COLUMN topic_id VARCHAR(64), ADD COLUMN leader_epoch INT, ADD COLUMN leader_epoch_at BIGINT, ADD COLUMN end_offset BIGINT',
  'DO 0'
);

-- name: add_pointer_columns_prepare
-- A statement that is in a variable can only be run when it is prepared.
PREPARE inorder_install FROM @inorder_install;

-- name: add_pointer_columns_run
-- Adds the columns, or does nothing.
EXECUTE inorder_install;

-- name: add_pointer_columns_forget
-- The connection may be shared.
DEALLOCATE PREPARE inorder_install;

-- name: add_pointer_unknown_choose
-- For a table without this column, as above.
SET @inorder_install = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = DATABASE() AND table_name = 'inorder_pointer' AND column_name = 'unknown_fields') = 0,
  'ALTER TABLE inorder_pointer ADD COLUMN unknown_fields TEXT',
  'DO 0'
);

-- name: add_pointer_unknown_prepare
-- As above.
PREPARE inorder_install FROM @inorder_install;

-- name: add_pointer_unknown_run
-- As above.
EXECUTE inorder_install;

-- name: add_pointer_unknown_forget
-- As above.
DEALLOCATE PREPARE inorder_install;

-- name: add_pointer_waiting_choose
-- For a table without these columns, as above.
SET @inorder_install = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE table_schema = DATABASE() AND table_name = 'inorder_pointer' AND column_name = 'waiting_for') = 0,
  'ALTER TABLE inorder_pointer ADD COLUMN waiting_since DATETIME(6), ADD COLUMN waiting_for TEXT',
  'DO 0'
);

-- name: add_pointer_waiting_prepare
-- As above.
PREPARE inorder_install FROM @inorder_install;

-- name: add_pointer_waiting_run
-- As above.
EXECUTE inorder_install;

-- name: add_pointer_waiting_forget
-- As above.
DEALLOCATE PREPARE inorder_install;

-- name: create_dead_letter
-- Records that could not be applied, with the reason and their original bytes.
CREATE TABLE IF NOT EXISTS inorder_dead_letter (
    pipeline         VARCHAR(255) NOT NULL,
    topic            VARCHAR(249) NOT NULL,
    `partition`      INT          NOT NULL,
    `offset`         BIGINT       NOT NULL,
    generation       INT          NOT NULL DEFAULT 0,
    code             VARCHAR(100) NOT NULL,
    detail           LONGTEXT     NOT NULL,
    `key`            LONGBLOB,
    `value`          LONGBLOB,
    record_timestamp DATETIME(6),
    recorded_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (pipeline, topic, `partition`, `offset`)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: create_tombstone
-- Keys whose rows were deleted, with the version of the delete, so that no older record creates them again.
CREATE TABLE IF NOT EXISTS inorder_tombstone (
    pipeline           VARCHAR(255)    NOT NULL,
    `key`              VARBINARY(1024) NOT NULL,
    version_generation INT             NOT NULL,
    version_offset     BIGINT          NOT NULL,
    recorded_at        DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (pipeline, `key`)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: create_tombstone_mark
-- For `inorder pipeline clean`: tombstones recorded before before_at are of no use once the records below these ends are gone.
-- ends is a JSON object: for each topic its Kafka id and the end of each partition.
CREATE TABLE IF NOT EXISTS inorder_tombstone_mark (
    pipeline  VARCHAR(255) NOT NULL PRIMARY KEY,
    before_at DATETIME(6)  NOT NULL,
    ends      LONGTEXT     NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: create_table
-- The target table; updated_at is informative, order comes from the version columns alone. A row that another program inserts
-- is older than any record. The collation, whose name differs between the two servers, distinguishes "a" from "a ".
CREATE TABLE IF NOT EXISTS {table} (
    {key_definitions},
    {definitions},
    version_generation INT         NOT NULL DEFAULT 0,
    version_offset     BIGINT      NOT NULL DEFAULT -1,
    updated_at         DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY ({keys})
) ENGINE = InnoDB CHARACTER SET utf8mb4 /*!80017 COLLATE utf8mb4_0900_bin */ /*M!100202 COLLATE utf8mb4_nopad_bin */;

-- name: existing_columns
-- The columns of the target table, with whether each is nullable.
SELECT column_name, is_nullable = 'NO' FROM information_schema.columns
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s;

-- name: existing_keys
-- The columns of each unique key of the target table; a text column that is not compared byte by byte does not count as a key.
SELECT CONCAT('["', GROUP_CONCAT(s.column_name SEPARATOR '","'), '"]')
FROM information_schema.statistics s
JOIN information_schema.columns c
  ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name
WHERE s.table_schema = COALESCE(%(schema)s, DATABASE()) AND s.table_name = %(name)s AND s.non_unique = 0
GROUP BY s.index_name
HAVING SUM(c.collation_name IS NOT NULL AND c.collation_name NOT LIKE '%%nopad_bin'
           AND c.collation_name NOT LIKE '%%0900_bin' AND c.collation_name <> 'ascii_bin') = 0;

-- name: required_columns
-- The number of columns, besides the key and those of inorder, that a new row requires and a message may lack.
SELECT COUNT(*) FROM information_schema.columns
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s AND is_nullable = 'NO'
  AND column_name NOT IN ({own_names}) AND (column_default IS NULL OR column_name IN ({field_names}));

-- name: lock_pointer
-- The mutex of a partition, held until the transaction ends; and whether the pipeline has tombstones.
SELECT next_offset, generation, topic_id, end_offset,
       EXISTS (SELECT 1 FROM inorder_tombstone t WHERE t.pipeline = %(pipeline)s)
FROM inorder_pointer
WHERE pipeline = %(pipeline)s AND topic = %(topic)s AND `partition` = %(partition)s
FOR UPDATE;

-- name: begin_pointer
-- A partition that is seen for the first time; waits for a concurrent insert and keeps its row.
INSERT INTO inorder_pointer (pipeline, topic, `partition`, generation, next_offset, topic_id)
VALUES (%(pipeline)s, %(topic)s, %(partition)s, %(generation)s, %(next_offset)s, %(topic_id)s)
ON DUPLICATE KEY UPDATE next_offset = inorder_pointer.next_offset;

-- name: put_upsert
-- A bulk write. Assignments are evaluated from first to last, and each sees the previous ones: the time and the version are
-- assigned if the row is newer and different, the values if the version was assigned. A row of another key, matched by another
-- unique index, is not touched.
INSERT INTO {table} ({keys}, {columns}, version_generation, version_offset) VALUES {rows}
ON DUPLICATE KEY UPDATE
    updated_at = IF({newer} AND {condition}, UTC_TIMESTAMP(6), updated_at),
    version_offset = IF({newer} AND {condition}, VALUES(version_offset), version_offset),
    version_generation = IF({same_key} AND version_offset = VALUES(version_offset),
                            GREATEST(version_generation, VALUES(version_generation)), version_generation),
    {assignments};

-- name: put_insert
-- The same for rows that must not exist.
INSERT INTO {table} ({keys}, {columns}, version_generation, version_offset) VALUES {rows}
ON DUPLICATE KEY UPDATE version_offset = {table}.version_offset;

-- name: put_update
-- One row that must exist.
UPDATE {table} SET
    {bound_assignments},
    updated_at = UTC_TIMESTAMP(6),
    version_generation = %(generation)s,
    version_offset = %(offset)s
WHERE {bound_key} AND {bound_newer} AND {bound_condition};

-- name: remove
-- Deletes one row if it is older.
DELETE FROM {table} WHERE {bound_key} AND {bound_newer};

-- name: versions
-- The versions of the rows that exist. MariaDB uses the primary key for one condition per key, but not for a list of tuples.
SELECT {keys}, version_generation, version_offset FROM {table} WHERE {rows};

-- name: tombstones
-- The tombstones of some keys.
SELECT `key`, version_generation, version_offset FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND `key` IN %(keys)s;

-- name: entomb
-- Writes tombstones of rows that were deleted, or never existed.
INSERT INTO inorder_tombstone (pipeline, `key`, version_generation, version_offset) VALUES {rows}
ON DUPLICATE KEY UPDATE version_generation = VALUES(version_generation), version_offset = VALUES(version_offset),
                        recorded_at = UTC_TIMESTAMP(6);

-- name: revive
-- Deletes the tombstones of rows that were created again.
DELETE FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND `key` IN %(keys)s;

-- name: bury
-- Dead letters of a slice; an existing one is the same record.
INSERT INTO inorder_dead_letter
    (pipeline, topic, `partition`, generation, `offset`, code, detail, `key`, `value`, record_timestamp) VALUES {rows}
ON DUPLICATE KEY UPDATE generation = inorder_dead_letter.generation;
