-- name: add
-- Not a plain ADD COLUMN IF NOT EXISTS: that would wait for every open transaction of the table, and make every new one wait,
-- only to find that there is nothing to do.
DO $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass('{table}') AND attname = '{column}' AND NOT attisdropped
  ) THEN
    ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {definition};
  END IF;
END
$$;
