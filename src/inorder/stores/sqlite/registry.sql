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

-- name: register
-- The first one is kept.
INSERT INTO inorder_relay (outbox, group_name, strategy, shards)
VALUES (%(outbox)s, %(group)s, %(strategy)s, %(shards)s)
ON CONFLICT (outbox) DO NOTHING;
