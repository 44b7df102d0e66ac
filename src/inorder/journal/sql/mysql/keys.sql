-- name: install_journal_key
-- The data keys of journals, one for each life as a rule. A key that is destroyed has no secret.
CREATE TABLE IF NOT EXISTS inorder_journal_key (
    key_id        VARCHAR(32)   NOT NULL,
    topic         VARCHAR(249)  NOT NULL,
    id            VARCHAR(400)  NOT NULL,
    life          VARCHAR(64),
    log_partition INT           NOT NULL,
    seen          BIGINT        NOT NULL,
    secret        VARBINARY(64),
    created       TIMESTAMP     NOT NULL DEFAULT CURRENT_TIMESTAMP,
    destroyed     TIMESTAMP     NULL,
    PRIMARY KEY (topic, id, key_id)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
