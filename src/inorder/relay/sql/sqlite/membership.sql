-- name: install
-- One row an instance of a relay group; times are days as julianday() counts them.
CREATE TABLE IF NOT EXISTS inorder_member (
    group_name TEXT NOT NULL,
    instance   TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (group_name, instance)
);

-- name: beat
-- Counts an instance as alive for a while.
INSERT INTO inorder_member (group_name, instance, expires_at)
VALUES (%(group)s, %(instance)s, julianday('now') + %(seconds)s / 86400.0)
ON CONFLICT (group_name, instance) DO UPDATE SET expires_at = excluded.expires_at;

-- name: standing
-- How many are alive, and how many of them come before this one.
SELECT COUNT(*), COALESCE(SUM(instance < %(instance)s), 0)
FROM inorder_member
WHERE group_name = %(group)s AND expires_at > julianday('now');

-- name: forget
-- Removes those that have been gone for an hour.
DELETE FROM inorder_member
WHERE group_name = %(group)s AND expires_at < julianday('now') - 1 / 24.0;

-- name: leave
-- Removes this one.
DELETE FROM inorder_member WHERE group_name = %(group)s AND instance = %(instance)s;

-- name: exists
-- A row if the table is there.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'inorder_member';

-- name: alive
-- Who is alive.
SELECT instance FROM inorder_member WHERE group_name = %(group)s AND expires_at > julianday('now') ORDER BY instance;
