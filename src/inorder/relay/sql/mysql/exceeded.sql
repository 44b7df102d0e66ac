-- name: install_exceeded
-- Outbox rows that used up their attempts: what would have been sent, for reading, and the whole row as it was.
-- Texts compare byte by byte, times are UTC.
CREATE TABLE IF NOT EXISTS inorder_exceeded (
    outbox      VARCHAR(128) NOT NULL,
    id          BIGINT NOT NULL,
    topic       TEXT NOT NULL,
    `key`       LONGBLOB,
    `value`     LONGBLOB,
    headers     LONGTEXT,
    `partition` INT,
    `timestamp` BIGINT,
    created_at  DATETIME(6),
    attempts    INT NOT NULL,
    code        TEXT NOT NULL,
    reason      LONGTEXT NOT NULL,
    parks       BOOLEAN NOT NULL,
    exceeded_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    original    LONGTEXT,
    PRIMARY KEY (outbox, id)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: install_exceeded_action
-- What operators did with exceeded rows, and why.
CREATE TABLE IF NOT EXISTS inorder_exceeded_action (
    outbox   VARCHAR(128) NOT NULL,
    id       BIGINT NOT NULL,
    topic    TEXT NOT NULL,
    `key`    LONGBLOB,
    action   TEXT NOT NULL,
    reason   LONGTEXT NOT NULL,
    acted_by TEXT NOT NULL,
    acted_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: find
-- When the row was written, and the row as its layout reads it, locked. Times that the driver cannot hold are left out;
-- `original` has them.
SELECT IF({written_at} >= '1000-01-01', {written_at}, NULL), {columns}
FROM {table} WHERE {id} = %(id)s FOR UPDATE;

-- name: note_action
-- Who did what with which row, and why.
INSERT INTO inorder_exceeded_action (outbox, id, topic, `key`, action, reason, acted_by)
VALUES (%(outbox)s, %(id)s, %(topic)s, %(key)s, %(action)s, %(reason)s, CURRENT_USER());

-- name: note_actions
-- The same for rows that are still among the exceeded ones.
INSERT INTO inorder_exceeded_action (outbox, id, topic, `key`, action, reason, acted_by)
SELECT outbox, id, topic, `key`, %(action)s, %(reason)s, CURRENT_USER()
FROM inorder_exceeded WHERE outbox = %(outbox)s AND id IN {listed} ORDER BY id;

-- name: listed
-- Ids that are given as JSON.
(SELECT listed FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list)
