-- name: install
-- One row an outbox table; while it changes, the columns of the target say into what.
CREATE TABLE IF NOT EXISTS inorder_relay (
    outbox          text NOT NULL PRIMARY KEY,
    group_name      text NOT NULL,
    strategy        text NOT NULL,
    shards          integer NOT NULL,
    epoch           bigint NOT NULL DEFAULT 1,
    state           text NOT NULL DEFAULT 'steady',
    target_group    text,
    target_strategy text,
    target_shards   integer
);

-- name: register
-- The first one is kept.
INSERT INTO inorder_relay (outbox, group_name, strategy, shards)
VALUES (%(outbox)s, %(group)s, %(strategy)s, %(shards)s)
ON CONFLICT (outbox) DO NOTHING;
