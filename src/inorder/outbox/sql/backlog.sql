-- name: backlog
-- What waits, and since when; every dialect understands it.
SELECT count(*), min({written_at}) FROM {table};
