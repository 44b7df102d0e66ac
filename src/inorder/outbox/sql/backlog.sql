-- name: backlog
-- What waits, and since when; every dialect understands it.
SELECT count(*), min({written_at}) FROM {table};

-- name: topics
-- The topics of the first rows above an id: all rows would take long on a large table.
SELECT DISTINCT topic FROM (
    SELECT {topic} AS topic FROM {table} WHERE {id} > %(above)s ORDER BY {id} LIMIT {most}
) AS first_rows;
