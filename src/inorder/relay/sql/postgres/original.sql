-- name: columns
-- Name, type and whether it is binary, of every column that can be written.
SELECT attname, format_type(atttypid, atttypmod), atttypid = 'bytea'::regtype FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum;

-- name: read
-- One row, locked.
SELECT {columns} FROM {table} WHERE {id} = %(id)s FOR UPDATE;

-- name: read_binary
-- As bytes.
{column};

-- name: read_other
-- As every type can be printed.
CAST({column} AS text);

-- name: put_back
-- Under its old id, also where ids are given by the database only.
INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values});

-- name: bind
-- From text to what the column holds.
CAST({value} AS {type});

-- name: bind_undecodable
-- There is no such text here.
CAST({value} AS {type});

-- name: move_value
-- The value as bytes, from the outbox to the exceeded row, within the server.
UPDATE inorder_exceeded SET "value" = (SELECT {value} FROM {table} WHERE {id} = %(id)s)
WHERE outbox = %(outbox)s AND id = %(id)s;

-- name: value_of_binary
-- As it is.
{column};

-- name: value_of_other
-- Its text in UTF-8.
convert_to(CAST({column} AS text), 'UTF8');

-- name: bind_value_binary
-- The value of the exceeded row, as it is.
(SELECT "value" FROM inorder_exceeded WHERE outbox = %(exceeded_outbox)s AND id = %(exceeded_id)s);

-- name: bind_value_other
-- The value of the exceeded row, from text to what the column holds.
(SELECT CAST(convert_from("value", 'UTF8') AS {type}) FROM inorder_exceeded
 WHERE outbox = %(exceeded_outbox)s AND id = %(exceeded_id)s);
