-- name: exists
-- A row if the table is there.
SELECT 1 FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'inorder_pause';

-- name: pause
INSERT INTO inorder_pause (kind, name, reason, paused_by)
VALUES (%(kind)s, %(name)s, %(reason)s, %(paused_by)s)
ON DUPLICATE KEY UPDATE
    reason = %(reason)s, paused_by = %(paused_by)s, paused_at = CURRENT_TIMESTAMP(3);
