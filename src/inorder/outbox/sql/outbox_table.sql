-- name: look
-- Fails unless the table is there and has the columns of its layout; every dialect understands it.
SELECT {columns} FROM {table} WHERE 1 = 0;
