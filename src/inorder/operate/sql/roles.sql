-- What `inorder schema sql --roles` prints, where all dialects read alike.

-- name: on_table
GRANT {rights} ON {table} TO {role};
