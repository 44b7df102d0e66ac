-- name: install_projection
-- One row a partition: all records below next_offset are in the read model. While scan_id is set, the store's journals after that id
-- are still to be read; up to store_to the store decides about journals that have no row below.
CREATE TABLE IF NOT EXISTS inorder_projection (
    projection  VARCHAR(100) NOT NULL,
    topic       VARCHAR(249) NOT NULL,
    `partition` INT          NOT NULL,
    next_offset BIGINT       NOT NULL,
    topic_id    VARCHAR(64),
    scan_id     TEXT,
    store_to    BIGINT,
    failures    INT          NOT NULL DEFAULT 0,
    error       TEXT,
    updated_at  TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (projection, topic, `partition`)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: install_projection_journal
-- One row a journal: its life as of the last record that was applied, by which the next one is judged.
CREATE TABLE IF NOT EXISTS inorder_projection_journal (
    projection  VARCHAR(100) NOT NULL,
    topic       VARCHAR(249) NOT NULL,
    `partition` INT          NOT NULL,
    id          VARCHAR(400) NOT NULL,
    seq_nr      BIGINT       NOT NULL,
    delete_to   BIGINT       NOT NULL,
    is_begun    BOOLEAN      NOT NULL,
    life        VARCHAR(64),
    applied     BIGINT       NOT NULL,
    PRIMARY KEY (projection, topic, `partition`, id)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: insert
-- The first start of a partition; a second one changes nothing.
INSERT IGNORE INTO inorder_projection (projection, topic, `partition`, next_offset, topic_id)
VALUES (%(projection)s, %(topic)s, %(partition)s, %(next_offset)s, %(topic_id)s);

-- name: lock
-- Waits for any other holder, then sees what it committed.
SELECT next_offset, topic_id, scan_id, store_to
FROM inorder_projection
WHERE projection = %(projection)s AND topic = %(topic)s AND `partition` = %(partition)s
FOR UPDATE;

-- name: lock_all
-- Before a reset, so that no instance is in the middle of a transaction.
SELECT `partition` FROM inorder_projection WHERE projection = %(projection)s ORDER BY topic, `partition` FOR UPDATE;

-- name: journals
-- What is known of some journals; ids is a JSON array.
SELECT j.id, j.seq_nr, j.delete_to, j.is_begun, j.life, j.applied
FROM inorder_projection_journal j
JOIN JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id VARCHAR(400) CHARACTER SET utf8mb4 PATH '$')) w
  ON j.id = w.id COLLATE utf8mb4_bin
WHERE j.projection = %(projection)s AND j.topic = %(topic)s AND j.`partition` = %(partition)s;

-- name: save_journals
-- rows is a JSON array of objects.
INSERT INTO inorder_projection_journal
    (projection, topic, `partition`, id, seq_nr, delete_to, is_begun, life, applied)
SELECT %(projection)s, %(topic)s, %(partition)s, r.id, r.seq_nr, r.delete_to, r.is_begun, r.life, r.applied
FROM JSON_TABLE(%(rows)s, '$[*]' COLUMNS (
    id VARCHAR(400) CHARACTER SET utf8mb4 PATH '$.id', seq_nr BIGINT PATH '$.seq_nr',
    delete_to BIGINT PATH '$.delete_to', is_begun INT PATH '$.is_begun',
    life VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.life', applied BIGINT PATH '$.applied'
)) r
ON DUPLICATE KEY UPDATE
    seq_nr = VALUES(seq_nr), delete_to = VALUES(delete_to), is_begun = VALUES(is_begun), life = VALUES(life),
    applied = VALUES(applied);

-- name: remove_journals
-- Purged ones; ids is a JSON array.
DELETE FROM inorder_projection_journal
WHERE projection = %(projection)s AND topic = %(topic)s AND `partition` = %(partition)s
  AND id IN (
    SELECT w.id COLLATE utf8mb4_bin
    FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id VARCHAR(400) CHARACTER SET utf8mb4 PATH '$')) w
  );
