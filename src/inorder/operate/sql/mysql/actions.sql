-- name: install_action
-- What operators did, from any front end: who, what, why, and what became of it. Ids ascend with time. Times are UTC.
CREATE TABLE IF NOT EXISTS inorder_action (
    id       VARCHAR(40) NOT NULL PRIMARY KEY,
    acted_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    actor    TEXT NOT NULL,
    origin   TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   LONGTEXT NOT NULL,
    reason   LONGTEXT NOT NULL,
    state    TEXT NOT NULL,
    outcome  LONGTEXT NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
