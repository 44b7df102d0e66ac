-- name: read
SELECT kind, name, reason, paused_by, paused_at FROM inorder_pause ORDER BY kind, name;

-- name: resume
DELETE FROM inorder_pause WHERE kind = %(kind)s AND name = %(name)s;
