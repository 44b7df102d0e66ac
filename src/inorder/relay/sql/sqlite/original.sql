-- name: columns
-- Name and declared type of every column that can be written; what is binary, each value tells by itself.
SELECT name, type, 0 FROM pragma_table_info(%(name)s, COALESCE(%(schema)s, 'main')) ORDER BY cid;

-- name: read
-- One row; no one else writes while we have a transaction.
SELECT {columns} FROM {table} WHERE {id} = %(id)s;

-- name: read_binary
-- As it is.
{column};

-- name: read_other
-- As it is.
{column};

-- name: put_back
-- Under its old id.
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: bind
-- As it was.
{value};

-- name: bind_undecodable
-- Text again, though it is bound as bytes.
CAST({value} AS TEXT);
