-- Statements of the strategy `mark-purge`.

-- name: mark
-- Claims the oldest rows that are not ours yet. FOR UPDATE locks them in id order before the first is changed: two leaders that
-- mark the same rows wait for one another instead of deadlocking, and the second one gets them all.
WITH marked AS (
  UPDATE {table} SET {leader_id} = %(leader_id)s
  WHERE {id} IN (
    SELECT {id} FROM {table}
    WHERE {id} > %(above)s AND {leader_id} IS DISTINCT FROM %(leader_id)s AND {mine}
    ORDER BY {id} LIMIT %(limit)s
    FOR UPDATE
  )
  RETURNING *
)
SELECT {columns} FROM (SELECT *, {size} > %(most)s AS is_large FROM marked) AS met;

-- name: mark_again
-- Claims those of some rows that are of our shard, regardless of their mark.
WITH marked AS (
  UPDATE {table} SET {leader_id} = %(leader_id)s WHERE {id} = ANY(%(ids)s) AND {mine} RETURNING *
)
SELECT {columns} FROM (SELECT *, {size} > %(most)s AS is_large FROM marked) AS met;

-- name: reset
-- Frees what is ours. It reads the whole table, since no index knows marks: every mark and every reset would have to pay for it,
-- and a reset happens only when a term ends.
UPDATE {table} SET {leader_id} = NULL WHERE {leader_id} = %(leader_id)s;
