-- name: install
-- One row an outbox table; while it changes, the columns of the target say into what.
CREATE TABLE IF NOT EXISTS inorder_relay (
    outbox          TEXT NOT NULL PRIMARY KEY,
    group_name      TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    shards          INTEGER NOT NULL,
    epoch           INTEGER NOT NULL DEFAULT 1,
    state           TEXT NOT NULL DEFAULT 'steady',
    target_group    TEXT,
    target_strategy TEXT,
    target_shards   INTEGER
);

-- name: install_identity
-- A random name for each outbox table, so that a marker of another one is recognized.
CREATE TABLE IF NOT EXISTS inorder_outbox (
    outbox   TEXT NOT NULL PRIMARY KEY,
    identity TEXT NOT NULL
);

-- name: identify
-- The first name is kept.
INSERT INTO inorder_outbox (outbox, identity) VALUES (%(outbox)s, %(identity)s)
ON CONFLICT (outbox) DO NOTHING;

-- name: register
-- The first one is kept.
INSERT INTO inorder_relay (outbox, group_name, strategy, shards)
VALUES (%(outbox)s, %(group)s, %(strategy)s, %(shards)s)
ON CONFLICT (outbox) DO NOTHING;
