-- name: install
-- One row a shard; the term counts changes of owner.
CREATE TABLE IF NOT EXISTS inorder_lease (
    name       text PRIMARY KEY,
    owner      text,
    term       bigint NOT NULL DEFAULT 1,
    expires_at timestamptz NOT NULL
);

-- name: acquire
-- Wins a lease that is free, expired or ours; returns nothing otherwise.
INSERT INTO inorder_lease AS lease (name, owner, expires_at)
VALUES (%(name)s, %(owner)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    term = lease.term + CASE WHEN lease.owner IS DISTINCT FROM excluded.owner THEN 1 ELSE 0 END,
    expires_at = excluded.expires_at
WHERE lease.owner IS NULL OR lease.owner = excluded.owner OR lease.expires_at < clock_timestamp()
RETURNING term;

-- name: exists
-- A row if the table is there.
SELECT 1 WHERE to_regclass('inorder_lease') IS NOT NULL;

-- name: status
-- Who holds a lease, NULL if it has expired, and the last term.
SELECT CASE WHEN expires_at > clock_timestamp() THEN owner END, term FROM inorder_lease WHERE name = %(name)s;
