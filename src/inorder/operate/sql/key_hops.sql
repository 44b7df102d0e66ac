-- One key in the outbox and in a target table; every dialect understands these.

-- name: rows_of_key
-- What waits in the outbox, the first rows of it. It reads the whole table, which is short where a relay runs.
SELECT {id}, {topic}, {written_at} FROM {table} WHERE {wanted} AND {id} > %(above)s ORDER BY {id} LIMIT {most};

-- name: count_of_key
SELECT count(*) FROM {table} WHERE {wanted} AND {id} > %(above)s;

-- name: written_of_ids
-- Rows whose records are in Kafka and that are not purged, or that the strategy keeps.
SELECT {id}, {written_at} FROM {table} WHERE {wanted} AND {id} IN ({ids});

-- name: row_of_key
SELECT {columns}, version_generation, version_offset, updated_at FROM {table} WHERE {same_key};

-- name: tombstone_of_key
SELECT version_generation, version_offset FROM inorder_tombstone WHERE pipeline = %(pipeline)s AND {key} = %(key)s;
