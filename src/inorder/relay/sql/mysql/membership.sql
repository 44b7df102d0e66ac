-- name: install
-- One row an instance of a relay group.
CREATE TABLE IF NOT EXISTS inorder_member (
    group_name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    instance   VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (group_name, instance)
);

-- name: beat
-- Counts an instance as alive for a while.
INSERT INTO inorder_member (group_name, instance, expires_at)
VALUES (%(group)s, %(instance)s, UTC_TIMESTAMP(6) + INTERVAL %(seconds)s * 1000000 MICROSECOND)
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at);

-- name: standing
-- How many are alive, and how many of them come before this one.
SELECT COUNT(*), COALESCE(SUM(instance < %(instance)s), 0)
FROM inorder_member
WHERE group_name = %(group)s AND expires_at > UTC_TIMESTAMP(6);

-- name: forget
-- Removes those that have been gone for an hour.
DELETE FROM inorder_member
WHERE group_name = %(group)s AND expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR;

-- name: leave
-- Removes this one.
DELETE FROM inorder_member WHERE group_name = %(group)s AND instance = %(instance)s;

-- name: exists
-- A row if the table is there.
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'inorder_member';

-- name: alive
-- Who is alive.
SELECT instance FROM inorder_member WHERE group_name = %(group)s AND expires_at > UTC_TIMESTAMP(6) ORDER BY instance;
