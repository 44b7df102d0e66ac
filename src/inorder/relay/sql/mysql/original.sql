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

-- name: move_value
-- The value as bytes, from the outbox to the exceeded row: within the server, as no packet holds three copies of it.
UPDATE inorder_exceeded SET `value` = (SELECT {value} FROM {table} WHERE {id} = %(id)s)
WHERE outbox = %(outbox)s AND id = %(id)s;

-- name: value_of_binary
-- As it is.
{column};

-- name: value_of_other
-- Its text in UTF-8.
CAST(CONVERT({column} USING utf8mb4) AS BINARY);

-- name: bind_value_binary
-- The value of the exceeded row, as it is.
(SELECT `value` FROM inorder_exceeded WHERE outbox = %(exceeded_outbox)s AND id = %(exceeded_id)s);

-- name: bind_value_other
-- The value of the exceeded row as text; the column knows what to make of it.
(SELECT CONVERT(`value` USING utf8mb4) FROM inorder_exceeded WHERE outbox = %(exceeded_outbox)s AND id = %(exceeded_id)s);
