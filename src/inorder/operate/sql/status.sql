-- name: answers
-- Whether the database answers at all.
SELECT 1;
