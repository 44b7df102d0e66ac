-- The table of Debezium's outbox event router on PostgreSQL 12 and later.

-- name: install
-- The five columns that Debezium documents, and `seq`, which writers need not know.
--
-- Debezium takes the order of its rows from the log of the database; their ids are uuids and have none. We read the table,
-- so rows need a number, and a transaction that saw the effects of another must get larger ones. An identity does that as
-- long as it caches one number (CACHE 1): with more, each session would hold numbers of its own.
CREATE TABLE IF NOT EXISTS {table} (
  id            uuid         NOT NULL PRIMARY KEY,
  aggregatetype varchar(255) NOT NULL,
  aggregateid   varchar(255) NOT NULL,
  type          varchar(255) NOT NULL,
  payload       jsonb,
  seq           bigint       GENERATED ALWAYS AS IDENTITY (CACHE 1) UNIQUE
);

-- name: added
-- The number, for a table that Debezium has served so far. Adding it rewrites the table and numbers the rows as they lie,
-- which is not always how they were written: let Debezium finish and delete its rows first.
seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) UNIQUE;

-- name: id
-- The number; the uuid is a header.
seq;

-- name: columns
-- What `decode` takes. A payload may be jsonb, json, text or bytea: the first three are sent as their text, the last as it
-- is. A CASE must have one type whatever the column's is, so bytea goes to text and back there, which changes no byte.
seq, CAST(aggregatetype AS text), CAST(aggregateid AS text),
CASE
  WHEN pg_typeof(payload) = CAST('bytea' AS regtype) THEN CAST(CAST(payload AS text) AS bytea)
  ELSE convert_to(CAST(payload AS text), 'UTF8')
END,
CAST(id AS text);

-- name: size
-- The bytes of the columns that may be large; a primary key is not. JSON has no length of its own, so its text is made twice.
(CAST(COALESCE(octet_length(CAST("aggregatetype" AS text)), 0) AS bigint) +
COALESCE(octet_length(CAST("aggregateid" AS text)), 0) + COALESCE(octet_length(CAST("payload" AS text)), 0));

-- name: topic
-- For the shard; null or empty types have a flaw and no topic.
COALESCE('outbox.event.' || NULLIF(CAST(aggregatetype AS text), ''), '');

-- name: key
-- For the shard: the bytes that are sent.
convert_to(CAST(aggregateid AS text), 'UTF8');

-- name: written_at
-- Debezium's table does not say.
CAST(NULL AS timestamptz);
