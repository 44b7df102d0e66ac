-- name: install
-- One row a shard; the term counts changes of owner. Times are days, as SQLite's own clock counts them.
CREATE TABLE IF NOT EXISTS inorder_lease (
    name       TEXT PRIMARY KEY NOT NULL,
    owner      TEXT,
    term       INTEGER NOT NULL DEFAULT 1,
    expires_at REAL NOT NULL
);

-- name: acquire
-- Wins a lease that is free, expired or ours; returns nothing otherwise.
INSERT INTO inorder_lease (name, owner, expires_at)
VALUES (%(name)s, %(owner)s, julianday('now') + %(seconds)s / 86400.0)
ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    term = term + CASE WHEN owner IS NOT excluded.owner THEN 1 ELSE 0 END,
    expires_at = excluded.expires_at
WHERE owner IS NULL OR owner = excluded.owner OR expires_at < julianday('now')
RETURNING term;

-- name: exists
-- A row if the table is there.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'inorder_lease';

-- name: status
-- Who holds a lease, NULL if it has expired, and the last term.
SELECT CASE WHEN expires_at > julianday('now') THEN owner END, term FROM inorder_lease WHERE name = %(name)s;
