-- What an outbox holds, for those who only look; every dialect understands it.

-- name: extent
-- The lowest and the highest id.
SELECT min({id}), max({id}) FROM {table};

-- name: rows
-- The rows of a range of ids, in one snapshot.
SELECT {columns} FROM {table} WHERE {id} BETWEEN %(first)s AND %(last)s ORDER BY {id};
