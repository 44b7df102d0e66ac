-- name: exists
-- A row if the table is there.
SELECT 1 WHERE to_regclass('inorder_pause') IS NOT NULL;

-- name: pause
INSERT INTO inorder_pause (kind, name, reason, paused_by)
VALUES (%(kind)s, %(name)s, %(reason)s, %(paused_by)s)
ON CONFLICT (kind, name) DO UPDATE SET
    reason = excluded.reason, paused_by = excluded.paused_by, paused_at = now();
