-- What only MySQL and MariaDB grant.

-- name: on_locks
-- Which transactions write to the outbox; without it the relay is slower.
GRANT SELECT ON performance_schema.* TO {role};
