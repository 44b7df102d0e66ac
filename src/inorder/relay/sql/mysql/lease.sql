-- name: install
-- One row a shard; the term counts changes of owner. Names compare byte by byte.
CREATE TABLE IF NOT EXISTS inorder_lease (
    name       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    owner      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    term       BIGINT NOT NULL DEFAULT 1,
    expires_at DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- name: acquire
-- Wins a lease that is free, expired or ours. Assignments are made from left to right and see the ones before: the term
-- looks at the old owner, the time of expiry at the new one.
INSERT INTO inorder_lease (name, owner, expires_at)
VALUES (%(name)s, %(owner)s, UTC_TIMESTAMP(6) + INTERVAL ROUND(%(seconds)s * 1000000) MICROSECOND)
ON DUPLICATE KEY UPDATE
    term = term + IF(owner IS NULL OR (owner <> VALUES(owner) AND expires_at < UTC_TIMESTAMP(6)), 1, 0),
    owner = IF(owner IS NULL OR expires_at < UTC_TIMESTAMP(6), VALUES(owner), owner),
    expires_at = IF(owner = VALUES(owner), VALUES(expires_at), expires_at);

-- name: acquired
-- The term, if the lease is ours now.
SELECT term FROM inorder_lease WHERE name = %(name)s AND owner = %(owner)s;

-- name: exists
-- A row if the table is there.
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'inorder_lease';

-- name: status
-- Who holds a lease, NULL if it has expired, and the last term.
SELECT IF(expires_at > UTC_TIMESTAMP(6), owner, NULL), term FROM inorder_lease WHERE name = %(name)s;
