-- name: install_dead_letter_action
-- The actions of operators on dead letters, with the reason; batch is one command.
CREATE TABLE IF NOT EXISTS inorder_dead_letter_action (
    batch       TEXT NOT NULL,
    pipeline    TEXT NOT NULL,
    topic       TEXT NOT NULL,
    "partition" INTEGER NOT NULL,
    "offset"    INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    code        TEXT NOT NULL,
    "key"       BLOB,
    action      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    acted_by    TEXT NOT NULL,
    acted_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (batch, pipeline, topic, "partition", "offset")
);

-- name: actor
-- The database user.
''

-- name: for_update
-- Empty: a transaction is the only writer.
