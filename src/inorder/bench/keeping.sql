-- The tables of the strategy `polling` between trials and at their end. They are in PostgreSQL.

-- name: empty_offset
-- Ids go on where they are, as in the other strategies: the relay remembers some that it has published.
UPDATE {offset} SET "offset" = GREATEST("offset", (SELECT COALESCE(MAX(id), 0) FROM {table}));

-- name: empty_tables
-- Whatever a trial left.
TRUNCATE {table}, {missing}, {exceeded};

-- name: is_settled
-- Whether nothing is left to do.
SELECT (SELECT "offset" FROM {offset}) >= (SELECT COALESCE(MAX(id), 0) FROM {table})
       AND NOT EXISTS (SELECT FROM {missing});
