-- Statements of the strategy `mark-purge`.

-- name: find_unmarked
-- The oldest rows without our mark. It locks nothing: a locking read would wait for every open transaction's rows.
SELECT {id} FROM {table} FORCE INDEX ({index})
WHERE {id} > %(above)s AND ({leader_id} IS NULL OR {leader_id} <> %(leader_id)s) AND {mine}
ORDER BY {id} LIMIT %(limit)s;

-- name: find_marked
-- Rows with our mark.
SELECT {id} FROM {table} FORCE INDEX ({index}) WHERE {leader_id} = %(leader_id)s;

-- name: mark
-- Claims those of some rows that are of our shard, regardless of their mark. Ids are given in order, so two leaders that mark the
-- same rows wait for one another instead of deadlocking, and the second one gets them all.
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} AS outbox FORCE INDEX ({index}) ON outbox.{id} = listed
SET outbox.{leader_id} = %(leader_id)s
WHERE {mine};

-- name: unmark
-- Takes our mark off rows.
UPDATE JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} AS outbox FORCE INDEX ({index}) ON outbox.{id} = listed
SET outbox.{leader_id} = NULL
WHERE outbox.{leader_id} = %(leader_id)s;

-- name: read_marked
-- Those of some rows that are ours now.
SELECT {columns} FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
STRAIGHT_JOIN {table} FORCE INDEX ({index}) ON {id} = listed
WHERE {leader_id} = %(leader_id)s AND {mine};
