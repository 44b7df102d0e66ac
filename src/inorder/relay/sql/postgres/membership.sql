-- name: install
-- One row an instance of a relay group.
CREATE TABLE IF NOT EXISTS inorder_member (
    group_name text NOT NULL,
    instance   text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (group_name, instance)
);

-- name: beat
-- Counts an instance as alive for a while.
INSERT INTO inorder_member (group_name, instance, expires_at)
VALUES (%(group)s, %(instance)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (group_name, instance) DO UPDATE SET expires_at = excluded.expires_at;

-- name: standing
-- How many are alive, and how many of them come before this one.
SELECT count(*), count(*) FILTER (WHERE instance < %(instance)s)
FROM inorder_member
WHERE group_name = %(group)s AND expires_at > clock_timestamp();

-- name: forget
-- Removes those that have been gone for an hour; two that join at once do not wait for each other.
DELETE FROM inorder_member WHERE (group_name, instance) IN (
    SELECT group_name, instance
    FROM inorder_member
    WHERE group_name = %(group)s AND expires_at < clock_timestamp() - interval '1 hour'
    FOR UPDATE SKIP LOCKED
);

-- name: leave
-- Removes this one.
DELETE FROM inorder_member WHERE group_name = %(group)s AND instance = %(instance)s;

-- name: exists
-- A row if the table is there.
SELECT 1 WHERE to_regclass('inorder_member') IS NOT NULL;

-- name: alive
-- Who is alive.
SELECT instance FROM inorder_member WHERE group_name = %(group)s AND expires_at > clock_timestamp() ORDER BY instance;
