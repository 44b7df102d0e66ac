-- name: release
-- Frees a lease that is ours.
UPDATE inorder_lease SET owner = NULL WHERE name = %(name)s AND owner = %(owner)s;
