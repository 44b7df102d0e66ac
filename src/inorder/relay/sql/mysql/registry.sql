-- name: install
-- One row an outbox table; while it changes, the columns of the target say into what.
CREATE TABLE IF NOT EXISTS inorder_relay (
    outbox          VARCHAR(128) NOT NULL PRIMARY KEY,
    group_name      VARCHAR(255) NOT NULL,
    strategy        VARCHAR(255) NOT NULL,
    shards          INT NOT NULL,
    epoch           BIGINT NOT NULL DEFAULT 1,
    state           VARCHAR(255) NOT NULL DEFAULT 'steady',
    target_group    VARCHAR(255),
    target_strategy VARCHAR(255),
    target_shards   INT
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: install_identity
-- A random name for each outbox table, so that a marker of another one is recognized.
CREATE TABLE IF NOT EXISTS inorder_outbox (
    outbox   VARCHAR(128) NOT NULL PRIMARY KEY,
    identity VARCHAR(64) NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name: identify
-- The first name is kept.
INSERT INTO inorder_outbox (outbox, identity) VALUES (%(outbox)s, %(identity)s)
ON DUPLICATE KEY UPDATE inorder_outbox.outbox = inorder_outbox.outbox;

-- name: register
-- The first one is kept.
INSERT INTO inorder_relay (outbox, group_name, strategy, shards)
VALUES (%(outbox)s, %(group)s, %(strategy)s, %(shards)s)
ON DUPLICATE KEY UPDATE inorder_relay.outbox = inorder_relay.outbox;
