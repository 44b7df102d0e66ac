-- name: facts
-- What tells servers that only speak the protocol, and extensions that spread tables over several servers.
SELECT 'version', version()
UNION ALL
SELECT 'extension ' || extname, extversion FROM pg_extension
WHERE extname IN ('citus', 'bdr', 'spock', 'pgactive');
