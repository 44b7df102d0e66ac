-- name: exists
-- A row if the table is there.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'inorder_pause';

-- name: pause
INSERT INTO inorder_pause (kind, name, reason, paused_by)
VALUES (%(kind)s, %(name)s, %(reason)s, %(paused_by)s)
ON CONFLICT (kind, name) DO UPDATE SET
    reason = excluded.reason, paused_by = excluded.paused_by, paused_at = CURRENT_TIMESTAMP;
