-- Statements of the strategy `mark-purge`.

-- name: mark
-- Marks the oldest rows without our mark.
UPDATE {table} SET {leader_id} = %(leader_id)s
WHERE {id} IN (
  SELECT {id} FROM {table} WHERE {id} > %(above)s AND {leader_id} IS NOT %(leader_id)s AND {mine}
  ORDER BY {id} LIMIT %(limit)s
)
RETURNING {columns};

-- name: mark_again
-- Claims those of some rows that are of our shard, regardless of their mark.
UPDATE {table} SET {leader_id} = %(leader_id)s
WHERE {id} IN (SELECT value FROM json_each(%(ids)s)) AND {mine}
RETURNING {columns};

-- name: reset
-- Takes our mark off every row.
UPDATE {table} SET {leader_id} = NULL WHERE {leader_id} = %(leader_id)s;
