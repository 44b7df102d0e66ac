-- name: columns
-- Name, type and whether it is binary, of every column that can be written.
SELECT column_name, column_type,
       data_type IN ('binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', 'longblob', 'bit')
FROM information_schema.columns
WHERE table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(name)s
  AND COALESCE(generation_expression, '') = ''
ORDER BY ordinal_position;

-- name: read
-- One row, locked.
SELECT {columns} FROM {table} WHERE {id} = %(id)s FOR UPDATE;

-- name: read_binary
-- As bytes.
{column};

-- name: read_other
-- As every type can be printed.
CAST({column} AS CHAR);

-- name: put_back
-- Under its old id.
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: bind
-- The column knows what to make of text.
{value};

-- name: bind_undecodable
-- There is no such text here.
{value};
