-- name: install_dead_letter_action
-- The actions of operators on dead letters, with the reason; batch is one command.
CREATE TABLE IF NOT EXISTS inorder_dead_letter_action (
    batch       CHAR(32) NOT NULL,
    pipeline    VARCHAR(128) NOT NULL,
    topic       VARCHAR(249) NOT NULL,
    `partition` INT NOT NULL,
    `offset`    BIGINT NOT NULL,
    generation  INT NOT NULL,
    code        TEXT NOT NULL,
    `key`       LONGBLOB,
    action      TEXT NOT NULL,
    reason      LONGTEXT NOT NULL,
    acted_by    TEXT NOT NULL,
    acted_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (batch, pipeline, topic, `partition`, `offset`)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: actor
-- The database user.
CURRENT_USER()

-- name: for_update
-- A second transaction waits, and finds nothing.
FOR UPDATE
