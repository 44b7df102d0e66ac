-- name: install_dead_letter_action
-- What people did with dead letters, and why; batch is one call of theirs.
CREATE TABLE IF NOT EXISTS inorder_dead_letter_action (
    batch       text NOT NULL,
    pipeline    text NOT NULL,
    topic       text NOT NULL,
    "partition" integer NOT NULL,
    "offset"    bigint NOT NULL,
    generation  integer NOT NULL,
    code        text NOT NULL,
    "key"       bytea,
    action      text NOT NULL,
    reason      text NOT NULL,
    acted_by    text NOT NULL,
    acted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch, pipeline, topic, "partition", "offset")
);

-- name: actor
-- Who does it, as far as the database knows.
current_user

-- name: for_update
-- Whoever comes second waits, and finds nothing.
FOR UPDATE
