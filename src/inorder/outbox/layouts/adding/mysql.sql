-- name: choose
-- MySQL knows no ADD COLUMN IF NOT EXISTS, so the statement is chosen first and run afterwards, on one connection.
SET @inorder_install = IF(
  (SELECT COUNT(*) FROM information_schema.columns
   WHERE column_name = '{column}'
     AND (CONCAT('`', table_schema, '`.`', table_name, '`') = '{table}'
          OR (table_schema = DATABASE() AND CONCAT('`', table_name, '`') = '{table}'))) = 0,
  'ALTER TABLE {table} ADD COLUMN {definition}',
  'DO 0'
);

-- name: prepare
-- A statement that is in a variable can only be run when it is prepared.
PREPARE inorder_install FROM @inorder_install;

-- name: run
-- Adds the column, or does nothing.
EXECUTE inorder_install;

-- name: forget
-- The connection may be somebody's.
DEALLOCATE PREPARE inorder_install;
