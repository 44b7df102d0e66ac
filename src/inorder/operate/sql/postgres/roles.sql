-- What only PostgreSQL grants.

-- name: in_schema
-- For tables that are named with their schema.
GRANT {right} ON SCHEMA {schema} TO {role};

-- name: in_current_schema
-- For tables that are found, and were created, by the search path.
DO $$
BEGIN
  EXECUTE format('GRANT {right} ON SCHEMA %I TO {role}', current_schema());
END
$$;

-- name: on_sequence
-- By the column, because the name of a sequence may be any.
DO $$
BEGIN
  EXECUTE 'GRANT {right} ON SEQUENCE ' || pg_get_serial_sequence('{table}', '{column}') || ' TO {role}';
END
$$;
