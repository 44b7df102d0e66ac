-- name: install_action
-- What operators did, from any front end: who, what, why, and what became of it. Ids ascend with time. Times are text in
-- UTC.
CREATE TABLE IF NOT EXISTS inorder_action (
    id       TEXT PRIMARY KEY,
    acted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    actor    TEXT NOT NULL,
    origin   TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,
    reason   TEXT NOT NULL,
    state    TEXT NOT NULL,
    outcome  TEXT NOT NULL
);
