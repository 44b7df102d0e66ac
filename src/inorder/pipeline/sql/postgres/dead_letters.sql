-- name: install_dead_letter_action
-- The actions of operators on dead letters, with the reason; batch is one command.
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
-- The database user.
current_user

-- name: for_update
-- A second transaction waits, and finds nothing.
FOR UPDATE
