-- name: install_action
-- What operators did, from any front end: who, what, why, and what became of it. Ids ascend with time.
CREATE TABLE IF NOT EXISTS inorder_action (
    id       text PRIMARY KEY,
    acted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL,
    origin   text NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,
    reason   text NOT NULL,
    state    text NOT NULL,
    outcome  text NOT NULL
);
