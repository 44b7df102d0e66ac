-- name: install_exceeded
-- Outbox rows that used up their attempts: what would have been sent, for reading, and the whole row as it was.
-- Times are text in UTC.
CREATE TABLE IF NOT EXISTS inorder_exceeded (
    outbox      TEXT NOT NULL,
    id          INTEGER NOT NULL,
    topic       TEXT NOT NULL,
    "key"       BLOB,
    "value"     BLOB,
    headers     TEXT,
    "partition" INTEGER,
    "timestamp" INTEGER,
    created_at  TEXT,
    attempts    INTEGER NOT NULL,
    code        TEXT NOT NULL,
    reason      TEXT NOT NULL,
    parks       INTEGER NOT NULL,
    exceeded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    original    TEXT,
    PRIMARY KEY (outbox, id)
);

-- name: install_exceeded_action
-- What operators did with exceeded rows, and why.
CREATE TABLE IF NOT EXISTS inorder_exceeded_action (
    outbox   TEXT NOT NULL,
    id       INTEGER NOT NULL,
    topic    TEXT NOT NULL,
    "key"    BLOB,
    action   TEXT NOT NULL,
    reason   TEXT NOT NULL,
    acted_by TEXT NOT NULL,
    acted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- name: find
-- When the row was written, and the row as its layout reads it. No one else writes while we have a transaction.
SELECT {written_at}, {columns} FROM {table} WHERE {id} = %(id)s;

-- name: note_action
-- Who did what with which row, and why.
INSERT INTO inorder_exceeded_action (outbox, id, topic, "key", action, reason, acted_by)
VALUES (%(outbox)s, %(id)s, %(topic)s, %(key)s, %(action)s, %(reason)s, '');

-- name: note_actions
-- The same for rows that are still among the exceeded ones.
INSERT INTO inorder_exceeded_action (outbox, id, topic, "key", action, reason, acted_by)
SELECT outbox, id, topic, "key", %(action)s, %(reason)s, ''
FROM inorder_exceeded WHERE outbox = %(outbox)s AND id IN {listed} ORDER BY id;

-- name: listed
-- Ids that are given as JSON.
(SELECT value FROM json_each(%(ids)s))
